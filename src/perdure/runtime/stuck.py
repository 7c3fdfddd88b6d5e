"""Notices a job that makes no progress while it runs: nudges it, then begins a new attempt, then fails it.

What was done is in the log before it is done, so that no crash makes it more than was allowed."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import structlog

from perdure.model.errors import PerdureError, Suspended
from perdure.model.events import NewEvent
from perdure.model.jobs import ClaimedJob, Lease, Outcome
from perdure.model.states import Status
from perdure.model.stuck import NOTICED, Stuck, StuckAction, StuckJob, StuckRecord
from perdure.model.timing import Clock, span
from perdure.runtime.history import History
from perdure.runtime.observer import Observer
from perdure.runtime.registry import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator

log = structlog.get_logger("perdure.worker")

NOTIFY_WITHIN = 10.0
"""Seconds that the function of the user's has which is notified."""
OnStuck: TypeAlias = Callable[[StuckJob], Awaitable[None] | None]

_OUTCOMES = {"tool_returned": "result", "tool_failed": "error"}


class Watched(Protocol):
    """What a watch needs of an attempt."""

    @property
    def clock(self) -> Clock: ...

    @property
    def claimed(self) -> ClaimedJob: ...

    @property
    def lease(self) -> Lease: ...

    @property
    def handler(self) -> Handler[Any, Any]: ...

    @property
    def history(self) -> History: ...

    @property
    def observer(self) -> Observer | None: ...

    @property
    def stop_reason(self) -> str | None: ...

    @property
    def is_waiting(self) -> bool: ...

    async def record(self, events: Sequence[NewEvent]) -> int: ...

    def stop(self, reason: str, outcome: Outcome | None) -> None: ...

    def cancel_with_attempt(self, task: asyncio.Task[Any]) -> None: ...


def watch_of(run: Watched) -> StuckWatch | None:
    """The watch of an attempt whose caller or handler says when it is stuck; else None."""
    stuck = run.history.stuck.given or run.handler.policy.stuck
    return None if stuck is None else StuckWatch(run, stuck)


def stuck_outcome(why: str) -> Outcome:
    """The job was stuck once more than its repairs allow."""
    return Outcome(Status.FAILED, error=why, error_kind="stuck")


class StuckWatch:
    """Of one attempt. `look` is called a few times a second, `saw` for everything that is written."""

    def __init__(self, run: Watched, stuck: Stuck) -> None:
        self._run = run
        self._stuck = stuck
        self._record: StuckRecord = run.history.stuck
        self.nudges = self._record.nudges
        """How often the job was nudged, in all attempts."""
        self._since = run.clock.monotonic()
        self._sleeping = 0
        self._silent_nudged = self._repeats_nudged = False
        self._last_call: tuple[str, str] | None = None
        self._last_outcome: tuple[str, str, str] | None = None
        self._repeats = 0
        self._acting: asyncio.Task[None] | None = None

    # -- progress ------------------------------------------------------------------------------------------------------

    def progressed(self) -> None:
        """Something that the job does went on."""
        self._since = self._run.clock.monotonic()
        self._silent_nudged = False

    def saw(self, events: Sequence[NewEvent]) -> None:
        """These were written."""
        if events and events[0].type == NOTICED:
            return
        if self._stuck.repeats is None or not self._only_repeats(events):
            self.progressed()

    @contextmanager
    def sleeping(self) -> Iterator[None]:
        """Meanwhile a call waits until it is made again."""
        self._sleeping += 1
        try:
            yield
        finally:
            self._sleeping -= 1
            self.progressed()

    def _only_repeats(self, events: Sequence[NewEvent]) -> bool:
        """Whether all of these belong to calls of a tool that repeat the one before. Counts them."""
        new = not events
        for event in events:
            if event.type == "tool_called":
                payload = json.loads(event.payload)
                self._last_call = _call_of(payload)
                new |= self._last_outcome is None or self._last_call != self._last_outcome[:2]
            elif (name := _OUTCOMES.get(event.type)) is not None:
                payload = json.loads(event.payload)
                outcome = (*_call_of(payload), json.dumps(payload[name], sort_keys=True))
                if outcome == self._last_outcome:
                    self._repeats += 1
                else:
                    self._last_outcome, self._repeats, self._repeats_nudged = outcome, 1, False
                    new = True
            else:
                new = True
        return not new

    # -- looking -------------------------------------------------------------------------------------------------------

    def look(self, now: float, late: float) -> None:
        """Do something if the job is stuck. now: a time of the store's clock. late: seconds in which this process did not run."""
        run = self._run
        self._since += late
        if run.stop_reason is not None or (self._acting is not None and not self._acting.done()):
            return
        if self._stuck.repeats is not None and self._repeats >= self._stuck.repeats:
            assert self._last_outcome is not None
            tool, times = self._last_outcome[0], self._repeats
            why = f"it called '{tool}' {times} times in a row with the same arguments and the same outcome"
            self._begin(why, nudged=self._repeats_nudged)
        elif self._sleeping or run.is_waiting:
            self._since = now
        elif now - self._since >= self._stuck.seconds:
            self._begin(f"it made no progress for {span(now - self._since)}", nudged=self._silent_nudged)

    def _begin(self, why: str, *, nudged: bool) -> None:
        action: StuckAction = "nudge"
        if nudged:
            action = "retry" if self._record.repairs < self._stuck.repair_attempts else "fail"
        self._acting = asyncio.get_running_loop().create_task(self._act(action, why))
        self._run.cancel_with_attempt(self._acting)

    async def _act(self, action: StuckAction, why: str) -> None:
        run, record = self._run, self._record
        about = {"job_id": str(run.claimed.id), "kind": run.claimed.kind, "attempt": run.lease.attempt, "why": why}
        if action == "fail":
            why = f"{why}, after {record.repairs} attempts that were begun for that" if record.repairs else why
            await self._notify(why)
        payload: dict[str, Any] = {"action": action, "why": why, "repairs": record.repairs + (action == "retry")}
        try:
            await run.record([NewEvent(NOTICED, json.dumps(payload))])
        except Suspended:
            return
        except PerdureError as error:  # it is noticed again
            log.warning("a stuck job could not be written", **about, error=str(error))
            return
        log.warning("a job is stuck", **about, action=action)
        self._since, self._repeats = run.clock.monotonic(), 0
        if run.observer is not None:
            run.observer.stuck(run.claimed, action)
        if action == "nudge":
            self.nudges += 1
            # a call that goes on is silent; one that is repeated writes
            self._silent_nudged = self._repeats_nudged = True
        elif action == "retry":
            delay = run.handler.policy.backoff.delay(record.repairs)
            run.stop("stuck", Outcome(Status.RETRY, error=why, error_kind="stuck", delay=delay, reason="stuck"))
        else:
            run.stop("stuck", stuck_outcome(why))

    async def _notify(self, why: str) -> None:
        run = self._run
        notify = run.handler.policy.on_stuck
        if notify is None:
            return
        try:
            async with asyncio.timeout(NOTIFY_WITHIN):
                notified = notify(StuckJob(run.claimed.id, run.claimed.kind, why, self._record.repairs))
                if inspect.isawaitable(notified):
                    await notified
        except Exception as error:  # noqa: BLE001  the job fails all the same
            log.warning("on_stuck failed", job_id=str(run.claimed.id), error=f"{type(error).__name__}: {error}")


def _call_of(payload: dict[str, Any]) -> tuple[str, str]:
    """The name of a tool without the number of its call, and the digest of its arguments."""
    name, _, number = payload["key"].rpartition("#")
    return (name if name and number.isdecimal() else payload["key"]), payload["digest"]
