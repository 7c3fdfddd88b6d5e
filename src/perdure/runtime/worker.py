"""The worker: claims jobs, runs them in slots, and stops gracefully.

One event loop runs it all: the claim loop fills a buffer of leased jobs, free slots take from the buffer, ends are committed
in the background in batches, and the keeper renews every lease. SIGKILL at any moment loses nothing: the leases run out and
other workers take the jobs over.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import random
import secrets
import socket
import time
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from perdure.model.current_attempt import attempt_ids, current_attempt
from perdure.model.errors import PerdureError
from perdure.model.jobs import DEFAULT_LEASE_SECONDS, DEFAULT_QUEUE, Outcome
from perdure.model.states import Status
from perdure.model.workers import WorkerCommand, WorkerInfo, WorkerState
from perdure.runtime.chores import EVERY, Chores
from perdure.runtime.finish import write_end
from perdure.runtime.invoke import invoke
from perdure.runtime.lease import Held, LeaseKeeper
from perdure.runtime.observer import Observer
from perdure.runtime.outcomes import traceback_of
from perdure.runtime.prefetch import Buffer, Prefetch
from perdure.runtime.registry import Registry
from perdure.runtime.retention import Retention
from perdure.runtime.run import ANNOUNCE_AFTER, Invoke, Run, hand_back
from perdure.runtime.threads import LooseThreads
from perdure.store.protocol import Listener, Store

log = structlog.get_logger("perdure.worker")

POLL = 1.0
SOON = 0.02
HOARD = 1.0
"""Seconds a job may wait in the buffer while all slots are taken."""

REPORT = 2.0
UNKNOWN_KIND_DELAY = 5.0
UNKNOWN_KIND_CAP = 300.0
MAX_UNCOMMITTED = 2000
THREADS_WAIT = 2.0
"""Seconds a stopping worker waits for the threads of plain handlers, which nothing can interrupt."""
LAST_WAIT = 8.0
SLOW_HANDLER = 0.1
"""A kind whose attempts take longer than this on average is marked started before its code runs."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """queues: served in turn, each by priority. concurrency: jobs run at once. lease: seconds until an unrenewed job is taken
    over. linger: seconds a short wait is sat out before parking. drain_timeout: seconds a graceful stop waits for steps.
    retention: which finished jobs it prunes, None for none. chores: seconds between two looks for jobs of dead workers and for
    what has expired."""

    queues: tuple[str, ...] = (DEFAULT_QUEUE,)
    concurrency: int = 100
    lease: float = DEFAULT_LEASE_SECONDS
    linger: float = 1.0
    drain_timeout: float = 30.0
    retention: Retention | None = None
    chores: float = EVERY


class Worker:
    """One worker process's engine. `run` until `stop`; everything it acknowledges is committed."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        options: WorkerOptions | None = None,
        *,
        observer: Observer | None = None,
        invoke: Invoke = invoke,
    ) -> None:
        self.id = "w-" + secrets.token_hex(5)
        self.options = options or WorkerOptions()
        self._store = store
        self._registry = registry
        self._observer = observer
        self._context = contextvars.copy_context()
        self._invoke = invoke
        self._keeper = LeaseKeeper(store, self.id, self.options.lease, self._cancel_buffered)
        self._prefetch = Prefetch(self.options.concurrency)
        size = max(8, self.options.concurrency)
        self._threads = LooseThreads(size, "perdure-step")
        self._handler_threads = LooseThreads(size, "perdure-handler")
        self._buffer = Buffer()
        self._running: dict[asyncio.Task[None], Held] = {}
        self._committing: set[asyncio.Task[Any]] = set()
        self._moved = asyncio.Event()
        self._stopping = asyncio.Event()
        self._now = asyncio.Event()
        self._only_once = False
        self.working = False
        """True while it is registered and runs jobs."""

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self, *, once: bool = False) -> None:
        """Work until `stop` is called; with once=True until nothing is due and nothing runs.

        Raises StoreUnreachable only while starting: later the worker waits for the database to come back.
        """
        self._only_once = once
        info = self._info(await self._store.now())
        await self._store.workers.register_worker(info)
        self.working = True
        self._tell("worker started", queues=self.options.queues, kinds=info.kinds)
        upkeep = Chores(self._store, self.id, every=self.options.chores, retention=self.options.retention)
        if once:
            await upkeep.run_once()  # nobody else may be there to take over what a dead worker left
        async with AsyncExitStack() as stack:
            hints = await stack.enter_async_context(self._store.hints.listen("work"))
            background = [
                asyncio.create_task(c)
                for c in (
                    self._keeper.beat_forever(),
                    self._keeper.watch_clock_forever(),
                    self._keeper.watch_cancels_forever(),
                    upkeep.run_forever(),
                    self._report_forever(),
                    self._give_back_forever(),
                    self._announce_forever(),
                )
            ]
            try:
                await self._work(hints)
                await self._drain()
            finally:
                self.working = False
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)
                for threads in (self._threads, self._handler_threads):
                    threads.shutdown(wait=False, cancel_futures=True)
                await self._leave()

    def stop(self, *, now: bool = False) -> None:
        """Stop claiming, let running steps finish, hand back the rest; with now=True cut steps off as well. Safe to repeat."""
        self._stopping.set()
        if now:
            self._now.set()
        self._moved.set()

    @property
    def stopping(self) -> bool:
        """True once `stop` was called."""
        return self._stopping.is_set()

    @property
    def busy(self) -> int:
        """Jobs running at this moment."""
        return len(self._running)

    # -- claiming ------------------------------------------------------------------------------------------------------

    async def _work(self, hints: Listener) -> None:
        queues = deque(self.options.queues)
        while not self._stopping.is_set():
            self._start_buffered()
            wanted = self._prefetch.wanted(
                running=len(self._running), buffered=self._buffer.number, longest=self._longest()
            )
            if wanted == 0 or len(self._committing) >= MAX_UNCOMMITTED:
                self._moved.clear()
                await self._moved.wait()
                continue
            got = 0
            for _ in range(len(queues)):
                queue = queues[0]
                queues.rotate(-1)
                got += await self._claim(queue, wanted - got)
                if got >= wanted:
                    break
            if got == 0:
                if self._only_once and not self._running and not self._committing and not self._buffer.number:
                    return
                await self._idle(hints)

    async def _idle(self, hints: Listener) -> None:
        """Wait for a hint, for the next job to fall due, or for the poll: the poll is the truth."""
        pause = POLL * random.uniform(0.75, 0.95)  # what nobody hinted at, as after a caller's commit, starts within it
        self._moved.clear()
        try:
            due = await self._store.leases.next_due(self.options.queues)
        except PerdureError as error:
            log.warning("asking for the next job failed", worker=self.id, error=str(error))
            due = None
        if due is not None:
            pause = min(pause, max(due, SOON))  # due already means locked by somebody else just now
        if self._only_once:
            pause = min(pause, 0.05)
        hint = asyncio.ensure_future(hints.wait(pause))
        # a worker that is to end when nothing runs looks again whenever a run has ended; `stop` sets both
        stop = asyncio.ensure_future((self._moved if self._only_once else self._stopping).wait())
        try:
            await asyncio.wait({hint, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hint.cancel()
            stop.cancel()

    async def _claim(self, queue: str, limit: int) -> int:
        asked_at = self._store.clock.monotonic()
        try:
            claimed = await self._store.leases.claim(
                worker_id=self.id, queue=queue, limit=limit, ttl=self.options.lease
            )
        except PerdureError as error:
            log.warning("claim failed", worker=self.id, queue=queue, error=str(error))
            await asyncio.sleep(POLL)
            return 0
        now = self._store.clock.monotonic()
        for job in claimed:
            self._buffer.put(self._keeper.add(job, asked_at, now))
        self._start_buffered()
        return len(claimed)

    def _longest(self) -> float:
        # dicts keep their order: the first of the running ones started first
        first = next(iter(self._running.values()), None)
        return 0.0 if first is None else time.monotonic() - first.since

    async def _announce_forever(self) -> None:
        """One timer for all running steps: one for each would cost more than the rest of a short step."""
        while True:
            await asyncio.sleep(ANNOUNCE_AFTER)
            now = time.monotonic()
            for held in self._running.values():
                if held.run is not None and held.run.steps:
                    held.run.announce_steps(now)

    async def _give_back_forever(self) -> None:
        """Jobs claimed ahead that find no slot belong to whoever has one: another worker, or more urgent work here."""
        while True:
            await asyncio.sleep(HOARD / 2)
            if len(self._running) >= self.options.concurrency:
                for held in self._buffer.take_all(older_than=time.monotonic() - HOARD):
                    self._commit(held, hand_back("claimed_too_early", started=False))

    # -- running -------------------------------------------------------------------------------------------------------

    def _start_buffered(self) -> None:
        buffer, running, loop = self._buffer, self._running, asyncio.get_running_loop()
        while buffer.number and len(running) < self.options.concurrency and not self._stopping.is_set():
            held = buffer.take()
            if self._keeper.held.get(held.claimed.lease.job_id) is not held:
                continue  # its lease was lost while it waited here
            now = time.monotonic()
            held.buffered, held.since = now - held.since, now
            # what a handler puts into its context is gone with it: the next task does not begin in that of the last
            task = loop.create_task(self._occupy_slot(held), context=self._context.copy())
            running[task] = held

    async def _occupy_slot(self, held: Held) -> None:
        """A task of its own for each job. What follows it is done here: a callback of the task would cost thrice as much."""
        task = asyncio.current_task()
        assert task is not None
        try:
            await self._run_one(task, held)
        except Exception as error:  # noqa: BLE001  its lease runs out
            log.error("a run broke", worker=self.id, exception=traceback_of(error))  # noqa: TRY400  see traceback_of
        finally:
            if self._running.pop(task, None) is not None:  # else it gave its slot back before it wrote its end
                self._start_buffered()
            self._moved.set()

    async def _run_one(self, task: asyncio.Task[None], held: Held) -> None:
        claimed = held.claimed
        current_attempt.set(claimed)
        handler = self._registry.find(claimed.kind)
        if handler is None:
            log.warning("no handler for this kind: handed back", **attempt_ids())
            reason = f"worker {self.id} has no handler for kind '{claimed.kind}'"
            delay = min(UNKNOWN_KIND_CAP, UNKNOWN_KIND_DELAY * 2 ** min(claimed.lease.attempt - 1, 10))
            self._commit(held, hand_back(reason, started=False, delay=delay * random.uniform(0.8, 1.2)))
            return
        if self._observer is not None:
            await self._observer.attempt_started(claimed, self._store, waited=claimed.waited + held.buffered)
            if self._keeper.held.get(claimed.id) is not held:
                self._lost(held)
                return
        must_mark = (
            claimed.lost_starts > 0 or claimed.max_retries == 0 or self._prefetch.mean(claimed.kind) > SLOW_HANDLER
        )
        if must_mark or not self._keeper.fresh(held):
            try:
                if not await self._keeper.renew([held], starting=must_mark):
                    self._lost(held)
                    return
            except PerdureError as error:
                log.warning("not started: the lease could not be renewed", **attempt_ids(), error=str(error))
                self._lost(held)
                return
        run = held.run = Run(
            self._store,
            claimed,
            handler,
            invoke=self._invoke,
            threads=self._threads,
            handler_threads=self._handler_threads,
            linger=self.options.linger,
            claimed_at=held.claimed_at,
            observer=self._observer,
        )
        if self._stopping.is_set():
            self._commit(held, hand_back("worker_stopped", started=False))
            return
        try:
            outcome = await run.execute(task)
        except BaseException:
            self._lost(held)
            raise
        if outcome is None:
            self._lost(held)
            return
        self._prefetch.observe(claimed.kind, outcome.ran)
        if task.cancelling():  # by its handler, which left it behind: it must not hit the write of the end
            self._commit(held, outcome)
        else:
            await self._commit_here(task, held, outcome)

    def _lost(self, held: Held) -> None:
        """There is nothing to write: the lease is gone."""
        self._keeper.drop(held)
        if self._observer is not None:
            self._observer.attempt_ended(held.claimed, None, None)

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _commit(self, held: Held, outcome: Outcome) -> None:
        """Write how an attempt ended, in the background: the slot is free already, the lease is kept until it is written."""
        task = asyncio.create_task(write_end(self._store, held, outcome, self._observer))
        self._committing.add(task)
        task.add_done_callback(lambda _: self._keeper.drop(held))
        task.add_done_callback(self._committed)

    async def _commit_here(self, task: asyncio.Task[None], held: Held, outcome: Outcome) -> None:
        """As `_commit`, by the task that ran the job: its slot is free from here on."""
        self._running.pop(task, None)
        self._committing.add(task)
        self._start_buffered()
        self._moved.set()
        try:
            await write_end(self._store, held, outcome, self._observer)
        finally:
            self._keeper.drop(held)
            self._committing.discard(task)

    def _committed(self, task: asyncio.Task[Any]) -> None:
        self._committing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the end of a job could not be written", worker=self.id, exception=traceback_of(error))
        self._moved.set()

    def _cancel_buffered(self, held: Held) -> None:
        if not self._buffer.remove(held):
            return  # it is being started this moment: the next poll finds it running
        self._commit(held, Outcome(Status.CANCELLED, reason="cancelled", started=False))

    # -- stopping ------------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        for held in self._buffer.take_all():
            self._commit(held, hand_back("worker_stopped", started=False))
        for held in list(self._running.values()):
            if held.run is not None:
                held.run.drain()
        deadline = time.monotonic() + self.options.drain_timeout
        while self._running and not self._now.is_set() and time.monotonic() < deadline:
            await self._wait_moved(min(0.2, deadline - time.monotonic()))
        for held in list(self._running.values()):
            if held.run is not None:
                held.run.stop("worker stopped", hand_back("worker_stopped"))
        if self._running:
            await asyncio.wait(self._running, timeout=THREADS_WAIT)
            for held in list(self._running.values()):
                if held.run is not None:
                    held.run.abandon_thread()
        if self._running:
            await asyncio.wait(self._running, timeout=LAST_WAIT)
        while self._committing:
            await asyncio.wait(set(self._committing))

    async def _wait_moved(self, timeout: float) -> None:
        self._moved.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._moved.wait()
        except TimeoutError:
            pass

    # -- being seen ----------------------------------------------------------------------------------------------------

    async def _report_forever(self) -> None:
        """Renew the worker's row and obey what an operator asks of it."""
        while True:
            await asyncio.sleep(REPORT)
            state = WorkerState.DRAINING if self._stopping.is_set() else WorkerState.RUNNING
            try:
                command = await self._store.workers.beat_worker(self.id, state=state)
            except PerdureError as error:
                log.warning("worker heartbeat failed", worker=self.id, error=str(error))
                continue
            match command:
                case None:
                    pass
                case WorkerCommand.DRAIN | WorkerCommand.STOP:
                    self.stop()
                case WorkerCommand.STOP_NOW:
                    self.stop(now=True)

    async def _leave(self) -> None:
        try:
            await self._store.workers.beat_worker(self.id, state=WorkerState.STOPPED)
        except PerdureError as error:
            log.warning("leaving without saying so", worker=self.id, error=str(error))
        self._tell("worker stopped")

    def _tell(self, event: str, **facts: Any) -> None:
        log.info(event, worker=self.id, **facts)

    def _info(self, now: datetime) -> WorkerInfo:
        return WorkerInfo(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=self.options.queues,
            kinds=tuple(sorted(h.name for h in self._registry)),
            concurrency=self.options.concurrency,
            state=WorkerState.RUNNING,
            started_at=now,
            heartbeat_at=now,
            alive=True,
        )
