"""The worker: claims jobs, runs them in slots, and stops gracefully.

All of it runs in one event loop: the claim loop fills a buffer of leased jobs, free slots take jobs from the buffer, ends are
committed in the background in batches, and one heartbeat renews all leases. SIGKILL at any moment loses nothing: the leases
expire and other workers take the jobs over.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import structlog

from perdure.model.current_attempt import attempt_ids, current_attempt
from perdure.model.errors import PerdureError
from perdure.model.jobs import Outcome
from perdure.model.states import Status
from perdure.model.workers import WorkerCommand
from perdure.runtime.attempt_watch import AttemptWatch
from perdure.runtime.budget_scopes import BudgetScopes
from perdure.runtime.chores import Chore, Chores, Serves
from perdure.runtime.code_version import version_of
from perdure.runtime.contexts import HeldJobs
from perdure.runtime.ends import Ends
from perdure.runtime.invoke import invoke
from perdure.runtime.lease import LeasedJob, LeaseManager
from perdure.runtime.looks import Looks
from perdure.runtime.observer import Observer
from perdure.runtime.outcomes import hand_back
from perdure.runtime.prefetch import Buffer, Prefetch
from perdure.runtime.queues import Queues
from perdure.runtime.registry import Registry
from perdure.runtime.run import Invoke, Run
from perdure.runtime.slots import Slots
from perdure.runtime.suspects import Suspects, suspects_among
from perdure.runtime.threads import DaemonThreads
from perdure.runtime.tracebacks import traceback_of
from perdure.runtime.watchdog import StoreOpener, Watchdog
from perdure.runtime.worker_options import WorkerOptions
from perdure.runtime.worker_row import WorkerRow
from perdure.store.protocol import Listener, Store

log = structlog.get_logger("perdure.worker")

POLL = 1.0
"""Seconds between two claims that find nothing, where no hint comes."""
SHORTEST_PAUSE = 0.02
MAX_BUFFERED = 1.0
"""Seconds a job may wait in the buffer while all slots are taken."""
MAX_UNCOMMITTED = 2000
"""Ends that are being written before no more jobs are claimed."""
THREADS_WAIT = 2.0
"""Seconds a stopping worker waits for the threads of plain handlers, which nothing can interrupt."""
LAST_WAIT = 8.0
SLOW_HANDLER = 0.1
"""Seconds: a job whose kind takes longer on average is marked started before its code runs."""


class Worker:
    """What a worker process does: `run` until `stop`. What it acknowledges is committed."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        options: WorkerOptions | None = None,
        *,
        observer: Observer | None = None,
        invoke: Invoke = invoke,
        opener: StoreOpener | None = None,
        version: str | None = None,
        database: str | None = None,
    ) -> None:
        self.id = "w-" + secrets.token_hex(5)
        self.options = options or WorkerOptions()
        self._store = store
        self._registry = registry
        self.version = version or version_of(handler.fn.__module__ for handler in registry)
        """Of the code of its handlers."""
        self._database = database  # what the log calls it
        self._observer = observer
        self._invoke = invoke
        self._leases = LeaseManager(
            store, self.id, self.options.lease, self._cancel_buffered, kinds=self.options.kind_leases
        )
        self._prefetch = Prefetch(self.options.concurrency)
        size = max(8, self.options.concurrency)
        self._threads = DaemonThreads(size, "perdure-step")
        self._handler_threads = DaemonThreads(size, "perdure-handler")
        self._queues = Queues(self.options.queues, self.id, store.leases)
        self._buffer = Buffer()
        self.held = HeldJobs(self.options.concurrency, self._leases.jobs, self._buffer.ids)
        self._changed = asyncio.Event()
        self._slots = Slots(
            self.options.concurrency, self._buffer, self._attempt, may_start=self._may_start, changed=self._changed.set
        )
        self._ends = Ends(store, self._leases, observer, self._changed.set)
        self._take = partial(store.leases.claim, worker_id=self.id, ttl=self.options.lease, version=self.version)
        self._budget_scopes = BudgetScopes(store)
        self._looks = Looks(store, self._leases, registry)
        self._stopping, self._woken = asyncio.Event(), asyncio.Event()
        self._suspects = Suspects(
            self._slots,
            self._buffer,
            self._ends,
            self._leases,
            stopping=self._stopping.is_set,
            wait_for_change=self._wait_for_change,
        )
        self._stop_now = asyncio.Event()
        self._watch = AttemptWatch(
            self.id,
            store.clock,
            self._slots,
            self._ends,
            (self._threads, self._handler_threads),
            self.options,
            lost=self._lost,
            stop=self.stop,
        )
        self._watchdog = Watchdog(self.id, self._slots, self._leases, self.options, opener)
        self._until_idle = self.working = False  # working: True while it is registered and runs jobs

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self, *, once: bool = False) -> None:
        """Run jobs until `stop` is called; with once=True until nothing is due and nothing runs.

        Raises StoreUnreachable only while starting: later the worker waits for the database to come back. If its task is
        cancelled, it interrupts what runs and hands the jobs back first, which takes up to ten seconds; cancelled again, it ends.
        """
        self._until_idle = once
        row, kinds = WorkerRow(self._store, self.id, lambda: (self.hung, self.blocked)), tuple(self._registry.kinds)
        await row.register(
            queues=self.options.queues,
            kinds=kinds,
            concurrency=self.options.concurrency,
            grace=self.options.grace,
            version=self.version,
        )
        self.working = True
        self._log_life("worker started", database=self._database, queues=self.options.queues, kinds=kinds)
        serves = Serves(self.version, self.options.queues, kinds, self._woken)
        options, more = self.options, (*self._registry.chores, Chore("budgets", lambda _: self._budget_scopes))
        chores = Chores(self._store, self.id, serves, every=options.chores, retention=options.retention, more=more)
        await self._budget_scopes.read_first()
        if once:
            await chores.run_once()  # there may be no other worker to take over the jobs of one that crashed
        async with AsyncExitStack() as stack:
            hints = await stack.enter_async_context(self._store.hints.listen("work"))
            background = [
                asyncio.create_task(c)
                for c in (
                    self._leases.renew_forever(),
                    self._leases.give_up_expired_forever(),
                    self._leases.watch_cancels_forever(),
                    chores.run_forever(),
                    row.beat_forever(self._stopping.is_set, self._obey),
                    self._hand_back_buffered_forever(),
                    self._watch.run_forever(),
                    self._watchdog.run_forever(),
                )
            ]
            try:
                await self._work(hints)
                await self._drain()
            except BaseException:
                await self._stop_attempts()
                raise
            finally:
                self.working = False
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)
                for threads in (self._threads, self._handler_threads):
                    threads.shutdown(wait=False, cancel_futures=True)
                await row.mark_stopped()
                self._log_life("worker stopped")

    def _log_life(self, event: str, **facts: Any) -> None:
        """The log lines of a worker's start and end."""
        log.info(event, worker=self.id, **facts)

    def stop(self, *, now: bool = False) -> None:
        """Stop claiming, let running steps finish, hand back the jobs; with now=True interrupt steps as well. May be repeated."""
        self._stopping.set()
        if now:
            self._stop_now.set()
        self._changed.set()

    def _obey(self, command: WorkerCommand) -> None:
        self.stop(now=command is WorkerCommand.STOP_NOW)

    @property
    def stopping(self) -> bool:
        """True once `stop` was called."""
        return self._stopping.is_set()

    @property
    def busy(self) -> int:
        """Jobs running at this moment."""
        return len(self._slots.running)

    @property
    def hung(self) -> int:
        """Tasks of handlers and threads of plain functions that go on though their attempt or call has ended, for longer than
        the grace."""
        return self._watch.hung

    @property
    def worn_out(self) -> bool:
        """True once it has stopped because too many calls hang in its process, which is to be replaced."""
        return self._watch.worn_out

    @property
    def blocked(self) -> int:
        """How often its event loop stood still."""
        return self._watchdog.blocked

    def may_end_process(self) -> None:
        """Its process is its own: it ends where its event loop stands still for longer than `max_blocked`."""
        self._watchdog.may_end_process = True

    def hand_back_blocked(self) -> None:
        """Hand back its jobs from another thread: its event loop is blocked, and the process is about to end."""
        self._watchdog.hand_back_all()

    @property
    def unfinished(self) -> bool:
        """True if tasks of handlers go on that do not stop: an event loop that is closed would wait for them."""
        return bool(self._slots.abandoned)

    @property
    def starved(self) -> float:
        """Seconds for which plain functions have waited for a thread while none became free; 0 where none waits."""
        return max(self._threads.starved, self._handler_threads.starved)

    # -- claiming ------------------------------------------------------------------------------------------------------

    async def _work(self, hints: Listener) -> None:
        got = 0
        while not self._stopping.is_set():
            self._slots.fill()
            wanted = self._prefetch.wanted(
                running=len(self._slots.running), buffered=self._buffer.number, longest=self._longest()
            )
            if wanted == 0 or self._ends.unwritten >= MAX_UNCOMMITTED:
                self._changed.clear()
                await self._changed.wait()
                continue
            await self._queues.look(self._registry.kinds, idle=got == 0 or self._until_idle)
            await self._looks.look_if_due()
            got, idle = 0, not (self._slots.running or self._ends.unwritten or self._buffer.number)
            for queue in self._queues.round():
                got += await self._claim(queue, wanted - got)
                if got >= wanted:
                    break
            if got == 0 and not await self._looks.look(until_idle=self._until_idle):
                if self._until_idle and idle:  # from before the claims: what ran may have enqueued more since
                    return
                await self._idle(hints)

    async def _idle(self, hints: Listener) -> None:
        """Wait for a hint, until the next job is due, or for the poll, which needs no hint."""
        # a job without a hint, as after a caller's own commit, starts within it
        pause = POLL * random.uniform(0.75, 0.95)
        self._changed.clear()
        hint = asyncio.ensure_future(hints.wait(pause))
        # with once=True it checks again each time an attempt has ended; `stop` sets both events
        stop = asyncio.ensure_future((self._changed if self._until_idle else self._stopping).wait())
        freed = asyncio.ensure_future(self._leases.slot_freed.wait())
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.sleep(0)
            if hint.done():  # it came during the claims
                return
            pause = min(pause, await self._next_due())
            if self._until_idle:
                pause = min(pause, 0.05)
            await asyncio.wait({hint, stop, freed, woken}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._woken.clear()
            for waiting in (hint, stop, freed, woken):
                waiting.cancel()

    async def _next_due(self) -> float:
        """Seconds until a claim may find something without a hint."""
        try:
            due = await self._looks.next_due(self._queues.names, self._registry.kinds, self._registry.limits)
        except PerdureError as error:
            log.warning("reading when the next job is due failed", worker=self.id, error=str(error))
            due = None
        return POLL if due is None else max(due, SHORTEST_PAUSE)  # due already: another session has locked it

    async def _claim(self, queue: str, limit: int) -> int:
        asked_at = self._store.clock.monotonic()
        try:
            kinds, limits = self._registry.kinds, self._registry.limits
            claimed = await self._take(queue=queue, kinds=kinds, limits=limits, limit=limit)
        except PerdureError as error:
            log.warning("claim failed", worker=self.id, queue=queue, error=str(error))
            await asyncio.sleep(POLL)
            return 0
        now = self._store.clock.monotonic()
        added = self._leases.add_all(claimed, asked_at, now)
        if suspects := suspects_among(added):
            added = [leased for leased in added if leased not in suspects]
            self._buffer.put_all(added)
            await self._suspects.run(suspects)
            return len(claimed)
        self._buffer.put_all(added)
        self._slots.fill()
        return len(claimed)

    def _longest(self) -> float:
        # dicts keep their order: the first one started first
        first = next(iter(self._slots.running.values()), None)
        return 0.0 if first is None else time.monotonic() - first.since

    async def _hand_back_buffered_forever(self) -> None:
        """Hand back jobs that were claimed ahead and find no slot: another worker may have one, or more urgent jobs wait here."""
        while True:
            await asyncio.sleep(MAX_BUFFERED / 2)
            if len(self._slots.running) >= self.options.concurrency:
                for leased in self._buffer.take_all(older_than=time.monotonic() - MAX_BUFFERED):
                    self._ends.add(leased, hand_back("claimed_too_early", started=False))

    # -- running -------------------------------------------------------------------------------------------------------

    def _may_start(self, leased: LeasedJob) -> bool:
        return self._leases.jobs.get(leased.claimed.lease.job_id) is leased  # else it was lost while it was buffered

    async def _attempt(self, task: asyncio.Task[None], leased: LeasedJob) -> None:
        """All that happens in the task and the context of one attempt."""
        claimed = leased.claimed
        current_attempt.set(claimed)
        try:
            handler = self._registry.get(claimed.kind)
            if self._observer is not None:
                waited = claimed.waited + leased.seconds_buffered
                await self._observer.attempt_started(claimed, self._store, waited=waited)
                if self._leases.jobs.get(claimed.id) is not leased:
                    self._lost(leased)
                    return
            must_mark = (
                claimed.lost_starts > 0
                or claimed.suspicion > 0
                or claimed.max_retries == 0
                or self._prefetch.mean(claimed.kind) > SLOW_HANDLER
            )
            if (must_mark or not self._leases.may_start(leased)) and not await self._renew(leased, must_mark):
                self._lost(leased)
                return
            run = leased.run = Run(
                self._store,
                leased,
                handler,
                invoke=self._invoke,
                threads=self._threads,
                handler_threads=self._handler_threads,
                linger=self.options.linger,
                grace=self.options.grace,
                observer=self._observer,
                version=self.version,
            )
            run.registry, run.budget_scopes = self._registry, self._budget_scopes.scopes
            if self._stopping.is_set():
                self._ends.add(leased, hand_back("worker_stopped", started=False))
                return
            outcome = await run.execute(task)
            if run.abandoned:
                return  # its end was written when it was abandoned
            if outcome is None:
                self._lost(leased)
                return
            self._prefetch.observe(claimed.kind, outcome.ran)
            self._ends.add(leased, outcome)
        except BaseException as error:
            if leased.run is None or not leased.run.abandoned:
                self._lost(leased)  # its lease is no longer renewed, and the job is taken over
            if not isinstance(error, Exception):
                raise
            log.error("an attempt failed in the worker itself", worker=self.id, exception=traceback_of(error))  # noqa: TRY400  see traceback_of

    async def _renew(self, leased: LeasedJob, starting: bool) -> bool:
        """Renew the lease of a job that is about to start; False if it must not start."""
        try:
            return bool(await self._leases.renew([leased], starting=starting))
        except PerdureError as error:
            log.warning("not started: the lease could not be renewed", **attempt_ids(), error=str(error))
            return False

    def _lost(self, leased: LeasedJob) -> None:
        """There is nothing to write: the lease is gone."""
        self._leases.remove(leased)
        if self._observer is not None:
            self._observer.attempt_ended(leased.claimed, None, None)

    def _cancel_buffered(self, leased: LeasedJob) -> None:
        if not self._buffer.remove(leased):
            return  # it is being started: the next poll finds it running
        self._ends.add(leased, Outcome(Status.CANCELLED, reason="cancelled", started=False))

    # -- stopping ------------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        for leased in self._buffer.take_all():
            self._ends.add(leased, hand_back("worker_stopped", started=False))
        for leased in list(self._slots.running.values()):
            if leased.run is not None:
                leased.run.drain()
        deadline = time.monotonic() + self.options.drain_timeout
        while self._slots.running and not self._stop_now.is_set() and time.monotonic() < deadline:
            await self._wait_for_change(min(0.2, deadline - time.monotonic()))
        for leased in list(self._slots.running.values()):
            if leased.run is not None:
                leased.run.stop("worker stopped", hand_back("worker_stopped"))
        if self._slots.running:
            await asyncio.wait(self._slots.running, timeout=THREADS_WAIT)
            for task, leased in list(self._slots.running.items()):
                if leased.run is not None and not leased.run.handler.is_async and leased.run.may_be_abandoned:
                    self._watch.abandon(task, leased)  # it cannot be interrupted
        if self._slots.running:
            await asyncio.wait(self._slots.running, timeout=LAST_WAIT)
            for task, leased in list(self._slots.running.items()):
                if leased.run is not None and leased.run.may_be_abandoned:
                    self._watch.abandon(task, leased)
        await self._ends.wait()

    async def _stop_attempts(self) -> None:
        """`run` ends by a cancellation or an error: what runs in tasks of its own must not go on without a heartbeat."""
        self.stop(now=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(THREADS_WAIT + LAST_WAIT):
                await self._drain()

    async def _wait_for_change(self, timeout: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            pass
