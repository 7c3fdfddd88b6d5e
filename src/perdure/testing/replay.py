"""Replaying a recorded job: its handler runs again, and everything it asks for is answered from the record. No function of a step
or tool is called, nothing is sent, and nothing is written outside of memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NoReturn
from uuid import UUID

from perdure.app import App
from perdure.model.budgets import TYPES as BUDGET_TYPES
from perdure.model.children import ChildState
from perdure.model.effects import Effect
from perdure.model.errors import ReplayDiverged, Suspended
from perdure.model.events import REPLAY_TYPES, Event, NewEvent
from perdure.model.jobs import NewJob, Outcome
from perdure.model.states import FAILURES, Status
from perdure.model.steps import COPIED, Step, steps_of
from perdure.model.waits import CODE
from perdure.runtime import codec
from perdure.runtime.context.current_call import current_call
from perdure.runtime.fork import checkpoint_in, copied, events_to_copy, step_named
from perdure.runtime.run import Run
from perdure.testing.attempt_monitor import AttemptMonitor
from perdure.testing.clock import ManualClock
from perdure.testing.memory import MemoryApp
from perdure.testing.recording import Recording

_HARMLESS = frozenset(
    {
        "checkpoint_saved",
        "failure_caught",
        "failure_retried",
        "budget_set",
        "budget_warned",
        "node_started",
        "stuck_noticed",
    }
)
"""What an attempt may write that asks for nothing."""

_NOT_FORKED = frozenset({"signal_received", "failure_caught", "failure_retried"})
"""What a fork does not begin with, and a replay does, besides the budget."""

_NOUNS = {
    "tool_called": "tool",
    "child_spawned": "child",
    "usage_recorded": "usage",
    "message_sent": "message",
    "message_appended": "message of the conversation",
    "variable_set": "variable",
    "wait_started": "wait",
    "wait_completed": "wait",
    "approval_requested": "approval",
}


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay that did what the record says.

    steps: how many steps, tools, waits and approvals were answered from the record. reached: the first call that the record
    does not answer, where the record ends before the job (it failed there, it had not ended, or `to` says so); None: the handler
    ran to its end. status, result: of the handler's end, the same as recorded.
    """

    job_id: UUID
    kind: str
    steps: int
    reached: str | None
    status: Status | None
    result: Any


async def replay(app: App, recording: Recording, *, to: str | int | None = None) -> Replay:
    """Run the handler of a recorded job offline. to: a step's name or its number: stop before it.

    It goes through what the job's last attempt went through, with what the attempts before had recorded. Raises ReplayDiverged,
    which names the first step that differs; UnknownHandler, StepNotFound.
    """
    app.registry.get(recording.kind)
    stop = step_named(recording.id, recording.events, to)
    async with MemoryApp(app, clock=ManualClock(recording.created_at)) as memory:
        return await _Player(memory, recording, stop).play()


class _Player:
    def __init__(self, memory: MemoryApp, recording: Recording, stop: Step | None) -> None:
        self._memory = memory
        self._recording = recording
        self._stop = stop
        self._before = None if stop is None else stop.version
        steps = [s for s in steps_of(recording.events) if self._before is None or s.version < self._before]
        self._steps = [step for step in steps if step.kind != CODE.name]
        self._monitor = _Monitor(self, memory.clock)
        memory.monitor = self._monitor
        memory.backend.invoke = self._monitor.invoke
        self.reached: tuple[str, str] | None = None
        """The kind and key of the first call that the record does not answer."""
        self.changed: str | None = None
        """How a call differs from its record."""
        self.unmet: dict[str, set[str]] = {}

    async def play(self) -> Replay:
        recording, store = self._recording, await self._memory.open()
        job = NewJob(
            id=recording.id,
            kind=recording.kind,
            payload=codec.encode(recording.payload, "the payload"),
            goal=recording.goal,
            max_retries=0,
            agent_id=recording.agent_id,
            session_id=recording.session_id,
        )
        kept = _kept(recording, self._before)
        await store.jobs.enqueue_recorded(
            job, [_as_written(e, recording) for e in kept], checkpoint=_checkpoint(recording, self._before)
        )
        await self._memory.run_until_idle()
        return self._judge(await self._memory.jobs.get(recording.id))

    def _judge(self, job: Any) -> Replay:
        recording = self._recording
        if self.changed is not None:
            self._diverged(self.changed, self.reached)
        answered = len([step for step in self._steps if step.status == "done"])
        if self.reached is not None:
            if self._stop is None and recording.status is Status.COMPLETED:
                noun, key = self.reached
                self._diverged(f"the handler comes to {noun} '{key}', which the record does not have", self.reached)
            if (
                self._stop is not None
                and self.reached[1] != self._stop.key
                and not self._recorded_later(self.reached[1])
            ):
                noun, key = self.reached
                self._diverged(f"the handler comes to {noun} '{key}' before '{self._stop.key}'", self.reached)
            return Replay(recording.id, recording.kind, answered, self.reached[1], None, None)
        if self.unmet and (missed := self._first_unmet()) is not None:
            failed = f": it fails: {_error(job)}" if job.status is not Status.COMPLETED and _error(job) else ""
            said = f"the handler ends without {missed.kind} '{missed.key}', which is in the record{failed}"
            self._diverged(said, None)
        if self._stop is not None:
            self._diverged(f"the handler ends without {self._stop.kind} '{self._stop.key}'", None)
        if job.status is Status.RETRY or job.status is Status.DEADLETTER or job.status is Status.FAILED:
            if recording.status not in FAILURES:
                self._diverged(f"the handler fails: {_error(job)}", None)
        elif job.status is not recording.status:
            self._diverged(f"the job is {job.status}, and was recorded as {recording.status}", None)
        elif job.result != recording.result:
            self._diverged(f"the result is {_short(job.result)}, and was recorded as {_short(recording.result)}", None)
        return Replay(recording.id, recording.kind, answered, None, job.status, job.result)

    def _recorded_later(self, key: str) -> bool:
        return any(step.key == key for step in steps_of(self._recording.events))

    def _first_unmet(self) -> Step | None:
        inside = {
            e.payload["key"] for e in self._recording.events if isinstance(e.payload, dict) and "inside" in e.payload
        }  # the calls that the function of another one made
        return next((s for s in self._steps if s.kind in self.unmet.get(s.key, ()) and s.key not in inside), None)

    def _diverged(self, what: str, at: tuple[str, str] | None) -> NoReturn:
        missed = self._first_unmet()
        text = f"job …{self._recording.short_id} {self._recording.kind} does not replay: {what}"
        if at is not None and missed is not None and missed.key != at[1]:
            text += f"; the record goes on with {missed.kind} '{missed.key}'"
        key = at[1] if at is not None else None if missed is None else missed.key
        raise ReplayDiverged(text, step=key)

    # -- what the attempt asks for ---------------------------------------------------------------------------------------

    def guard(self, run: Run) -> None:
        """Let this attempt write nothing that asks for something new."""
        write = run.record_busy
        known = run.store

        async def record_busy(events: Sequence[NewEvent], *effects: Effect) -> int:
            for event in events:
                if event.type not in _HARMLESS:
                    self._asked(run, event)
            return await write(events, *effects)

        vars(run)["record_busy"] = record_busy
        vars(run)["store"] = _Offline(known, self, run)
        run.claimed = run.claimed._replace(retry_count=self._recording.retry_count)

    def _asked(self, run: Run, event: NewEvent) -> NoReturn:
        payload = json.loads(event.payload)
        if event.type == "wait_started" and payload.get("kind") == CODE.name:
            self.changed = payload["subject"]
            self.end(run, str(payload["called"]), str(payload["step"]))
        key = payload.get("key", event.type) if isinstance(payload, dict) else event.type
        self.end(run, _NOUNS.get(event.type, "event"), str(key))

    def end(self, run: Run, noun: str, key: str) -> NoReturn:
        """The attempt asks for something that the record does not answer: it ends here."""
        if self.reached is None:
            self.reached = noun, key
            self.unmet = {of: set(kinds) for of, kinds in run.history.unmet.items()}
        run.stop("replayed", Outcome(Status.FAILED, error="the record ends here", error_kind="replay"))
        raise Suspended("replayed")

    def ended(self, run: Run) -> None:
        """The handler has ended."""
        if self.reached is None:
            self.unmet = {of: set(kinds) for of, kinds in run.history.unmet.items()}

    def children(self) -> Mapping[UUID, ChildState]:
        """The recorded children."""
        return self._recording.children

    def outputs(self) -> Mapping[tuple[UUID, int, str], Any]:
        """The recorded large outputs of tools."""
        return self._recording.outputs


class _Monitor(AttemptMonitor):
    """Calls the handler, and nothing that the handler gives to steps and tools."""

    def __init__(self, player: _Player, clock: ManualClock) -> None:
        super().__init__(clock, {})
        self._player = player

    async def invoke(self, run: Run, arguments: tuple[Any, ...]) -> Any:
        self._player.guard(run)
        try:
            return await super().invoke(run, arguments)
        finally:
            self._player.ended(run)

    async def _call(self, run: Run, fn: Any, args: Any, kwargs: Any, threads: Executor) -> Any:
        del fn, args, kwargs, threads
        call = current_call()
        self._player.end(run, call.kind, call.key)


class _Offline:
    """The store of the attempt: new approvals are refused, children and outputs of tools are those of the record."""

    def __init__(self, store: Any, player: _Player, run: Run) -> None:
        self._store = store
        self._player = player
        self._run = run
        self.approvals = _Approvals(store.approvals, player, run)
        self.children = _Children(store.children, player)
        self.files = _Files(store.files, player)
        self.signals = _Signals(store.signals, player, run)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Approvals:
    def __init__(self, approvals: Any, player: _Player, run: Run) -> None:
        self._approvals = approvals
        self._player = player
        self._run = run

    async def request_approval(self, lease: Any, new: Any) -> Any:
        del lease
        self._player.end(self._run, new.kind, new.key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._approvals, name)


class _Signals:
    def __init__(self, signals: Any, player: _Player, run: Run) -> None:
        self._signals = signals
        self._player = player
        self._run = run

    async def take_signals(self, lease: Any, agent_id: Any, key: str, event_id: Any) -> Any:
        del lease, agent_id, event_id
        self._player.end(self._run, "signals", key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._signals, name)


class _Children:
    def __init__(self, children: Any, player: _Player) -> None:
        self._children = children
        self._player = player

    async def read_children(self, ids: Sequence[UUID]) -> list[ChildState]:
        recorded = self._player.children()
        return [recorded[id] for id in ids if id in recorded]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._children, name)


class _Files:
    def __init__(self, files: Any, player: _Player) -> None:
        self._files = files
        self._player = player

    async def read_file(self, job_id: UUID, path: str, *, is_input: bool, attempt: int) -> bytes | None:
        del is_input  # a replay reads outputs of tools alone
        output = self._player.outputs().get((job_id, attempt, path))
        return None if output is None else json.dumps(output).encode()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


def _kept(recording: Recording, before: int | None) -> list[Event]:
    kept = [e for e in events_to_copy(recording.events, before=before) if e.type != "checkpoint_saved"]
    also = [
        e
        for e in recording.events
        if ((e.type in BUDGET_TYPES and e.type in REPLAY_TYPES) or e.type in _NOT_FORKED)
        and (before is None or e.version < before)
        and all(e is not other for other in kept)
    ]
    return sorted(kept + also, key=lambda e: e.version)


def _as_written(event: Event, recording: Recording) -> NewEvent:
    """An event as the job itself wrote it: it counts for the job's own usage and budget."""
    new = copied(event, recording.approvals)
    payload = json.loads(new.payload)
    if COPIED not in (event.payload if isinstance(event.payload, dict) else {}):
        payload.pop(COPIED, None)
    return NewEvent(new.type, json.dumps(payload, ensure_ascii=False))


def _checkpoint(recording: Recording, before: int | None) -> str | None:
    """The last checkpoint before the attempt that is replayed."""
    starts = [e.version for e in recording.events if e.type == "run_started" and (before is None or e.version < before)]
    first = starts[-1] if starts else 0
    return checkpoint_in([e for e in recording.events if e.version < first and e.type == "checkpoint_saved"])


def _error(job: Any) -> str | None:
    """What an attempt failed of."""
    error: str | None = job.error_message or job.note.get("error")
    return error


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}…"
