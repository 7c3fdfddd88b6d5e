"""A thread that sees whether the event loop of a worker stands still: it says what blocks it, and keeps the leases meanwhile.

It has an event loop and a connection of its own. A process that is stopped as a whole (SIGSTOP, a suspended machine) stops this
thread too, so its leases expire as they must; and no lease is renewed that has expired.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import NoReturn, Protocol

import structlog

from perdure.model.current_attempt import current_attempt
from perdure.model.errors import PerdureError
from perdure.model.jobs import Lease, Outcome
from perdure.model.workers import WorkerState
from perdure.runtime.lease import LeasedJob, LeaseManager
from perdure.runtime.outcomes import blocked_too_long, hand_back
from perdure.runtime.slots import Slots
from perdure.runtime.worker_options import WorkerOptions
from perdure.stop_signals import end_process
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.worker")

TICK = 0.25
"""Seconds between two looks, and between two marks of the event loop."""
BLOCKED_AFTER = 2.0
"""Seconds without a turn of the event loop that are logged; a short lease makes it less."""
HAND_BACK_WITHIN = 3.0
"""Seconds that the end of a blocked process waits for its jobs to be handed back."""
EXIT_CODE = 11
"""Of a process that ends because its event loop is blocked; as that of one in which too many calls hang."""

DEBUGGERS = frozenset({"pdb", "bdb", "pydevd", "_pydevd_bundle", "debugpy"})
"""Modules whose code waits while a thread is being debugged."""


class StoreOpener(Protocol):
    """Opens a store for the event loop that runs, and closes it at its end."""

    async def open(self) -> Store: ...

    async def close(self) -> None: ...


class Watchdog:
    """Looks after the event loop in which `run_forever` runs. opener: opens its own connection; None where there can be no second
    one, and then it only logs."""

    def __init__(
        self,
        worker_id: str,
        slots: Slots,
        leases: LeaseManager,
        options: WorkerOptions,
        opener: StoreOpener | None,
    ) -> None:
        self._worker_id = worker_id
        self._slots = slots
        self._leases = leases
        self._options = options
        self._opener = opener
        self._turn = time.monotonic()
        self._ended = threading.Event()
        self._keeping = False
        self.may_end_process = False
        """Whether the process is the worker's own."""
        self.blocked = 0
        """How often the event loop stood still."""

    async def run_forever(self) -> None:
        """Mark that the event loop has its turns, until cancelled; the thread runs as long."""
        self._turn = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        threading.Thread(target=self._watch, name="perdure-watchdog", daemon=True).start()
        try:
            while True:
                await asyncio.sleep(TICK)
                self._turn = time.monotonic()
        finally:
            self._ended.set()
            while self._keeping:  # noqa: ASYNC110  the thread sets it, within a moment: then its store is closed
                await asyncio.sleep(0.02)

    # -- in the thread -------------------------------------------------------------------------------------------------

    @property
    def _blocked_after(self) -> float:
        return max(2 * TICK, min(BLOCKED_AFTER, self._options.lease / 3))

    def _watch(self) -> None:
        looked = time.monotonic()
        while not self._ended.wait(TICK):
            now = time.monotonic()
            if now - looked > 2 * TICK + 1:  # this thread did not run either: the whole process stood still
                looked, self._turn = now, max(self._turn, now)
                continue
            looked = now
            since = self._turn
            if now - since > self._blocked_after:
                with suppress(Exception):  # it must not end: the next incident counts as well
                    self._incident(since)
                looked = time.monotonic()

    def _incident(self, since: float) -> None:
        culprit = self._culprit()
        self.blocked += 1
        self._say(culprit, since)
        if self._opener is not None and self._leases.jobs:
            self._keeping = True
            try:
                with suppress(Exception):  # then they expire; what follows is done all the same
                    asyncio.run(self._keep_leases(self._opener, since))
            finally:
                self._keeping = False
        looked = time.monotonic()
        while self._turn == since and not self._ended.wait(TICK):
            now = time.monotonic()
            stood, looked = now - looked > 2 * TICK + 1, now
            # not after the whole process stood still: the event loop may be about to go on
            too_long = now - since > self._options.most_blocked and not stood
            if self.may_end_process and too_long and not self._debugged():
                self._end(since)
        log.warning("the event loop runs again", worker=self._worker_id, seconds=round(time.monotonic() - since, 1))

    def _culprit(self) -> LeasedJob | None:
        """The job whose code has the turn, if that is known."""
        task = asyncio.current_task(self._loop)
        if task is None:
            return None
        leased = self._slots.running.get(task)
        if leased is None and hasattr(task, "get_context"):  # a task that a handler has started; from Python 3.12 on
            claimed = task.get_context().get(current_attempt)
            leased = None if claimed is None else self._leases.jobs.get(claimed.id)
        return leased

    def _debugged(self) -> bool:
        """Whether a person has stopped the event loop's thread with a debugger."""
        frame = sys._current_frames().get(self._thread_id)
        while frame is not None:
            if str(frame.f_globals.get("__name__")).partition(".")[0] in DEBUGGERS:
                return True
            frame = frame.f_back
        return False

    def _say(self, culprit: LeasedJob | None, since: float) -> None:
        frame = sys._current_frames().get(self._thread_id)
        stack = "" if frame is None else "".join(traceback.format_stack(frame))
        claimed = None if culprit is None else culprit.claimed
        log.error(
            "the event loop of this worker is blocked: await, or give blocking calls to a thread",
            worker=self._worker_id,
            seconds=round(time.monotonic() - since, 1),
            job_id=None if claimed is None else str(claimed.id),
            kind=None if claimed is None else claimed.kind,
            running=len(self._slots.running),
            stack=stack,
        )

    async def _keep_leases(self, opener: StoreOpener, since: float) -> None:
        """Renew what the worker holds until its event loop has a turn, or it is too long. A lease that has an end keeps it."""
        until = since + self._options.most_blocked
        store: Store | None = None
        renew_at = 0.0
        try:
            while self._turn == since and not self._ended.is_set() and (now := time.monotonic()) < until:
                if now >= renew_at:
                    renew_at = now + self._options.lease / 3
                    try:
                        async with asyncio.timeout(self._options.lease / 2):
                            store = store or await opener.open()
                            await self._leases.renew_from_outside(store)
                    except (PerdureError, TimeoutError, OSError) as error:
                        renew_at = now + 2 * TICK
                        log.warning(
                            "the leases of a blocked worker could not be renewed",
                            worker=self._worker_id,
                            error=str(error) or "no answer",
                        )
                await asyncio.sleep(TICK)
        finally:
            await opener.close()

    def _end(self, since: float) -> NoReturn:
        """End the process. The job that blocks it, if that is known, uses a retry, and the others do not; else all leases
        expire, and those that were lost together become suspects."""
        culprit, length = self._culprit(), round(time.monotonic() - since, 1)
        log.error(
            "the event loop is blocked for too long: this process ends, and is to be replaced",
            worker=self._worker_id,
            seconds=length,
            job_id=None if culprit is None else str(culprit.claimed.id),
            kind=None if culprit is None else culprit.claimed.kind,
        )
        if self._opener is not None:
            ends = [] if culprit is None else self._ends(culprit, length)
            with suppress(Exception):  # then the leases expire
                asyncio.run(self._write_ends(self._opener, ends))
        end_process(EXIT_CODE)

    def _ends(self, culprit: LeasedJob, length: float) -> list[tuple[Lease, Outcome]]:
        ends = [
            (leased.claimed.lease, hand_back("worker_stopped", started=leased.run is not None))
            for leased in list(self._leases.jobs.values())
            if leased is not culprit
        ]
        if culprit.run is not None:
            outcome = blocked_too_long(length, culprit.run.handler.policy, culprit.claimed.retry_count)
            ends.append((culprit.claimed.lease, outcome))
        return ends

    async def _write_ends(self, opener: StoreOpener, ends: list[tuple[Lease, Outcome]]) -> None:
        async with asyncio.timeout(HAND_BACK_WITHIN):
            store = await opener.open()
            await store.workers.beat_worker(self._worker_id, state=WorkerState.STOPPED, blocked=self.blocked)
            await store.leases.finish_many(ends)

    def hand_back_all(self) -> None:
        """Hand back what the worker holds, though its event loop is blocked: the process is about to end."""
        if self._opener is not None and self._leases.jobs:
            with suppress(Exception):  # then the leases expire
                asyncio.run(self._hand_back_all(self._opener))

    async def _hand_back_all(self, opener: StoreOpener) -> None:
        async with asyncio.timeout(HAND_BACK_WITHIN):
            store = await opener.open()
            await store.leases.finish_many(
                [
                    (leased.claimed.lease, hand_back("worker_stopped", started=leased.run is not None))
                    for leased in list(self._leases.jobs.values())
                ]
            )
