"""One attempt of one job, from claim to outcome. It holds the lease for that time, and it alone writes to the job's log.

The handler runs inside the task that runs the attempt, so stopping the attempt is cancelling that task: its context is
closed first, and nothing the handler still does is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Executor
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeAlias

import structlog

from perdure.model.effects import Effect
from perdure.model.errors import InvalidInput, LeaseLost, PerdureError, StoreError, Suspended
from perdure.model.events import NewEvent
from perdure.model.jobs import Outcome, completed
from perdure.model.states import Status
from perdure.runtime.busy import Busy, cancelled
from perdure.runtime.code_version import UNKNOWN
from perdure.runtime.failures import Failures
from perdure.runtime.history import NO_HISTORY, load_history
from perdure.runtime.lease_times import LeaseTimes
from perdure.runtime.leased_threads import LeasedThreads
from perdure.runtime.observer import Observer
from perdure.runtime.of_agent import OfAgent, policy_of
from perdure.runtime.outcomes import AttemptTimeout, hand_back, input_refused, outcome_of, outcome_of_exit
from perdure.runtime.payload_text import PayloadOf
from perdure.runtime.pending import Pending, Write
from perdure.runtime.progress import Progress, writer_of
from perdure.runtime.registry import Handler, Registry, call
from perdure.runtime.running_steps import RunningSteps
from perdure.runtime.shared_writes import SharedWrites
from perdure.runtime.stuck import StuckWatch, stuck_outcome, watch_of
from perdure.runtime.time_limit import END_MARGIN, TimeLimit, limit_of
from perdure.runtime.tracebacks import Tracebacks, tracebacks_of
from perdure.runtime.waits import Waits
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.run")

Invoke: TypeAlias = "Callable[[Run, tuple[Any, ...]], Awaitable[Any]]"
"""Calls the handler with a context made for this run: run.py itself knows no context."""


class Run:
    """The state of an attempt: the worker may stop it, the context writes through it, and the waits suspend it."""

    call = staticmethod(call)
    """Calls the functions given to steps and tools; the testing kit calls its stubs instead."""

    def __init__(
        self,
        store: Store,
        leased: LeaseTimes,
        handler: Handler[Any, Any],
        *,
        invoke: Invoke,
        threads: Executor,
        handler_threads: Executor,
        linger: float,
        grace: float,
        observer: Observer | None = None,
        version: str = UNKNOWN,
    ) -> None:
        self.store = store
        self.clock = store.clock
        self.claimed = leased.claimed
        self.lease = leased.claimed.lease
        self.handler = handler
        self.observer = observer
        self.version = version  # of the code that runs this attempt
        self._leased = leased
        self._step_threads = threads
        self._handler_threads = handler_threads
        self._invoke = invoke
        self._linger = linger
        self._grace = grace

    # How every attempt begins: what most of them never change costs them nothing.
    history = NO_HISTORY
    registry: Registry | None = None
    last_checkpoint: Any = None
    stop_reason: str | None = None  # why this attempt has stopped; None while it may still write
    draining = began = False
    abandoned = False  # True once the attempt has ended without its handler, which did not stop
    tracebacks: Tracebacks | None = None  # of what the handler raised
    of_agent: OfAgent | None = None
    stuck: StuckWatch | None = None
    context: object = None  # the handler's, while it runs
    budget_scopes: Collection[str] = ()
    _waits: Waits | None = None
    _progress: Progress | None = None
    pending: Pending | None = None
    _forced_outcome: Outcome | None = None
    _task: asyncio.Task[Any] | None = None
    _started, _busy, _refusals = 0.0, 0, 0
    _ending = False
    _limit: TimeLimit | None = None
    _stopped_at: float | None = None

    @cached_property
    def threads(self) -> Executor:
        """For plain functions given to steps and tools."""
        return LeasedThreads(self._step_threads, self)

    @cached_property
    def handler_threads(self) -> Executor:
        """For a plain handler, which would wait for steps that find no thread if it had one of theirs."""
        return LeasedThreads(self._handler_threads, self)

    @cached_property
    def _writes(self) -> SharedWrites:
        return SharedWrites(self.store, self._leased)

    @cached_property
    def steps(self) -> RunningSteps:
        """The steps that run now."""
        return RunningSteps(self.record, self.cancel_with_attempt)

    @cached_property
    def _branches(self) -> set[asyncio.Task[Any]]:
        """Tasks inside a step or tool other than the handler's own."""
        return set()

    @cached_property
    def _thread_calls(self) -> set[asyncio.Task[Any]]:
        """Calls made from threads."""
        return set()

    @property
    def waits(self) -> Waits:
        """The open waits of this attempt."""
        if self._waits is None:
            self._waits = Waits(self, linger=self._linger)
        return self._waits

    @property
    def progress(self) -> Progress:
        """The progress this attempt reports."""
        if self._progress is None:
            self._progress = Progress(writer_of(self))
        return self._progress

    @property
    def failures(self) -> Failures:
        """The failures of steps and tools in this attempt."""
        if self.pending is None:
            self.pending = Pending(self.lease)
        return self.pending.failures

    @property
    def _any_open(self) -> bool:
        return self._waits is not None and self._waits.any_open

    # -- the life of an attempt ----------------------------------------------------------------------------------------

    async def execute(self, task: asyncio.Task[Any]) -> Outcome | None:
        """Run the handler and say how the attempt ends; None means the lease is gone and there is nothing to write.

        task: the current one.
        """
        self._task = task
        started = self._started = self.clock.monotonic()
        self.began = True
        try:
            outcome = await self._attempt()
        except BaseException as error:
            # Suspended or a cancellation, alone or in a group: the attempt was stopped, or user code made it look so.
            # sys.exit or KeyboardInterrupt: out of the task it would end the worker, with all of its attempts
            if self.stop_reason is None and isinstance(error, asyncio.CancelledError) and self._task.cancelling():
                raise  # the worker itself is being cancelled
            self._keep_traceback(error)
            # an Exception comes from the store, before or after the handler
            meant = outcome_of if isinstance(error, Exception) else outcome_of_exit
            outcome = meant(error, policy_of(self.handler.policy, self.of_agent), self.claimed.retry_count)
        self._ending, self.context = True, None
        if "_branches" in self.__dict__:
            # one that outlives the handler (another branch raised) would run at the same time as the next attempt
            await cancelled(self._branches, 10)
        if self._waits is not None:
            self._waits.close()
        if self.stop_reason is not None:
            while self._task.uncancel():
                pass
            await cancelled(self._thread_calls, 1)
            if self._forced_outcome is None:
                return None
            outcome = self._forced_outcome
        self.stop_reason = self.stop_reason or "finished"
        if self._progress is not None:
            await self._progress.flush()
        if self.pending is not None and outcome.status is not Status.COMPLETED:
            await self.pending.write_last(self.store, outcome.status)
        if self._forced_outcome is None and self.stop_reason == "lease lost":
            return None
        if self.tracebacks is not None and outcome.error is not None and self._forced_outcome is None:
            outcome = outcome._replace(traceback=self.tracebacks.kept)
        return outcome if outcome.ran else outcome._replace(ran=self.clock.monotonic() - started)

    async def _attempt(self) -> Outcome:
        claimed, handler = self.claimed, self.handler
        try:
            # after 1 (created) and 2 (claimed) comes what earlier attempts recorded, or before them what a fork brought along
            if claimed.lease.attempt > 1 or claimed.version > 2:
                await self.load_history()
                if self.history.stuck.failed is not None:
                    return stuck_outcome(self.history.stuck.failed)
            self.stuck = watch_of(self)
            arguments = handler.arguments(claimed.payload, PayloadOf(claimed))
        except InvalidInput as error:
            return input_refused(error)
        try:
            if handler.policy.timeout is None and claimed.deadline is None:
                result = await self._invoke(self, arguments)
            else:
                result = await self._invoke_in_time(arguments)
            if self.stop_reason is not None:
                return Outcome(Status.RETRY)  # replaced by what stop() decided
            text = handler.encode_result(result)
        except Exception as error:  # noqa: BLE001  outcome_of says what it means
            self._keep_traceback(error)
            return outcome_of(error, policy_of(handler.policy, self.of_agent), claimed.retry_count)
        if self._waits is not None:
            await self._waits.leave_waiting()
        return completed(text, self.clock.monotonic() - self._started)

    def _keep_traceback(self, error: BaseException) -> None:
        if self.pending is not None and self.stop_reason is None:
            self.pending.failures.end(error)
        if self.stop_reason is None and not isinstance(error, (AttemptTimeout, StoreError)):
            self.tracebacks = tracebacks_of(error)

    async def load_history(self) -> None:
        """Read what is recorded, unless that was done."""
        if self.history is not NO_HISTORY:
            return
        self.history = await load_history(self.store, self.claimed.id)
        self.last_checkpoint = self.history.checkpoint
        if self.history.code_waits:
            self.pending = Pending(self.lease, self.history.code_waits)

    async def _invoke_in_time(self, arguments: tuple[Any, ...]) -> Any:
        deadline = self.claimed.deadline
        left = None if deadline is None else self.seconds_until(deadline)
        limit = limit_of(self.clock, self.handler.policy.timeout, left)
        if limit.length == 0:
            raise limit.error
        self._limit = limit
        self._leased.ends_at = limit.ends_at + self._grace + END_MARGIN
        result: Any = None
        try:
            async with limit.scope:
                result = await self._invoke(self, arguments)
        except BaseException:
            if self.stop_reason is not None or not limit.reached:
                raise
        if limit.reached:  # whatever the handler made of its cancellation
            raise limit.error
        return result

    @property
    def timed_out(self) -> bool:
        """True once the attempt ran into its timeout or the job's deadline."""
        return self._limit is not None and self._limit.reached

    # -- stopping ------------------------------------------------------------------------------------------------------

    def stop(self, reason: str, outcome: Outcome | None) -> None:
        """End the attempt now: close its context, cancel the handler, and end in `outcome` (None: the lease is lost).

        The first call decides; later ones only cancel again a handler that does not go.
        """
        if self._ending:
            return
        if self.stop_reason is None:
            self.stop_reason = reason
            self._forced_outcome = outcome
            self._stopped_at = self.clock.monotonic()
        self.close_context()
        # A call of the handler's own task raises Suspended itself; a cancellation would hit whatever it awaits next.
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def close_context(self) -> None:
        """Raise Suspended in every call of the context that waits, and cancel calls made from threads."""
        if self._waits is not None:
            self._waits.close()
        for task in self._thread_calls:
            task.cancel()

    def must_have_ended(self, now: float) -> bool:
        """Whether the attempt was to stop, or reached its limit, more than the grace ago. now: a time of the store's clock."""
        since = self._stopped_at
        if since is None and self._limit is not None and self._limit.reached:
            since = self._limit.ends_at
        return since is not None and now >= since + self._grace and self.may_be_abandoned

    @property
    def may_be_abandoned(self) -> bool:
        """Whether the handler still runs, in an attempt that has not ended."""
        return not (self._ending or self.abandoned)

    def abandon(self) -> Outcome | None:
        """End the attempt without its handler, which does not stop. Returns how it ends, None if the lease is lost."""
        self.abandoned = True  # a plain handler's task is free of its thread now
        if self._limit is None:
            self.stop("it did not stop", None)  # again
        else:
            error = self._limit.error
            self.stop(str(error), outcome_of(error, self.handler.policy, self.claimed.retry_count))
        forced = self._forced_outcome
        return None if forced is None else forced._replace(ran=self.clock.monotonic() - self._started)

    @property
    def lease_ended(self) -> bool:
        """Whether the lease is over by the local clock: then another worker may have the job, and no call may begin."""
        return self.clock.monotonic() >= self._leased.valid_until

    def check_lease(self) -> None:
        """Called before each call of a function. Raises Suspended, and stops the attempt, if the lease is over."""
        if self.lease_ended:
            self.lease_lost()
            raise Suspended(self.stop_reason)

    def lease_lost(self) -> None:
        """The lease is lost: another worker may run this job already."""
        if self.stop_reason is None:
            log.warning(
                "lease lost", job_id=str(self.claimed.id), attempt=self.lease.attempt, worker=self.lease.worker_id
            )
        self.stop("lease lost", None)

    def drain(self) -> None:
        """Let a running step finish, then hand the job back."""
        self.draining = True
        self._drain_if_idle()

    def _drain_if_idle(self) -> None:
        # Between two calls user code runs: it is stopped at its next call. Waiting is idle as well.
        if self.draining and self._busy == 0 and self._any_open and self.stop_reason is None:
            self.stop("worker drained", hand_back("worker_drained"))

    # -- what the context does -----------------------------------------------------------------------------------------

    @property
    def must_enter(self) -> bool:
        """False where `enter` would have nothing to do: most steps of most attempts."""
        return self.stop_reason is not None or self._limit is not None or self.draining or self._waits is not None

    async def enter(self) -> None:
        """Every keyed call of a context begins here: it raises Suspended in an attempt that has stopped or is to stop."""
        if self.stop_reason is not None or self.timed_out:
            # with a pause: a handler that catches this and calls again, without end, must not keep the others from running
            self._refusals += 1
            await asyncio.sleep(0 if self._refusals < 10 else 0.1)
            raise Suspended(self.stop_reason or "timed out")
        if self.draining:
            if self._busy == 0:
                self.stop("worker drained", hand_back("worker_drained"))
            else:
                await self.waits.until_stopped()
            raise Suspended(self.stop_reason)
        if self._waits is not None and self._waits.waiting:
            await self._waits.leave_waiting()

    def busy(self) -> Busy:
        """While a step or tool runs, or something is written, the attempt is neither parked nor drained."""
        return Busy(self)

    def begin_work(self) -> asyncio.Task[Any] | None:
        """See `busy`. Returns the task to give to `end_work`: that of a parallel branch, else None."""
        self._busy += 1
        if self._waits is not None:
            self._waits.note_activity()
        task = asyncio.current_task()
        if task is None or task is self._task or task in self._branches:
            return None
        self._branches.add(task)
        return task

    def end_work(self, branch: asyncio.Task[Any] | None) -> None:
        """See `busy`."""
        self._busy -= 1
        if branch is not None:
            self._branches.discard(branch)
        if self._waits is not None:
            self._waits.note_activity()
        if self.draining:
            asyncio.get_running_loop().call_soon(self._drain_after_step)

    def _drain_after_step(self) -> None:
        if self._busy == 0 and self.stop_reason is None and self._waits is not None and self._waits.any_blocked:
            self.stop("worker drained", hand_back("worker_drained"))
        self._drain_if_idle()

    @property
    def is_busy(self) -> bool:
        """True while a step or tool of this attempt runs, or something is written."""
        return self._busy > 0

    @property
    def is_waiting(self) -> bool:
        """True while all that goes on in this attempt may be waiting for a timer or an answer."""
        return self._waits is not None and self._waits.number >= max(1, self._busy)

    async def record(self, events: Sequence[NewEvent], *effects: Effect) -> int:
        """Write to the log under the lease. Raises Suspended, and stops the attempt, if the lease is gone."""
        with self.busy():
            return await self.record_busy(events, *effects)

    async def record_busy(self, events: Sequence[NewEvent], *effects: Effect) -> int:
        """`record`, from inside a step or tool, which is busy already."""
        if self.stop_reason is not None:
            raise Suspended(self.stop_reason)
        written: Write = (events, effects) if self.pending is None else self.pending.added_to(events, effects)
        try:
            version = await self._writes.write(*written)
        except LeaseLost:
            self.lease_lost()
            raise Suspended("lease lost") from None
        except PerdureError:
            if self.pending is not None:
                self.pending.give_back(written[0])
            raise
        if self.stuck is not None:
            self.stuck.saw(events)
        return version

    def announce_steps(self, now: float) -> None:
        """Write `node_started` of the steps that have run for a while: short ones are not worth a write of their own."""
        if "steps" in self.__dict__:
            self.steps.announce(now)

    def seconds_until(self, moment: datetime) -> float:
        """Seconds of database time until `moment`, computed from the time of the claim and a monotonic clock."""
        return (moment - self.database_now()).total_seconds()

    def database_now(self) -> datetime:
        """Database time as far as this attempt can tell without asking."""
        return self.claimed.claimed_at + timedelta(seconds=self.clock.monotonic() - self._leased.claimed_at)

    def cancel_with_attempt(self, task: asyncio.Task[Any]) -> None:
        """Cancel this task, such as a call made from a thread, when the attempt stops."""
        self._thread_calls.add(task)
        task.add_done_callback(self._thread_calls.discard)
