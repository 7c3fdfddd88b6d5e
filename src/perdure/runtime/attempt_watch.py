"""Looks after running attempts: announces their steps, ends those whose handler does not stop, and counts the calls that hang."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import structlog

from perdure.model.timing import Clock
from perdure.runtime.ends import Ends
from perdure.runtime.lease import LeasedJob
from perdure.runtime.running_steps import ANNOUNCE_AFTER
from perdure.runtime.slots import Slots
from perdure.runtime.threads import DaemonThreads
from perdure.runtime.worker_options import WorkerOptions

log = structlog.get_logger("perdure.worker")


class AttemptWatch:
    """The watch of one worker. lost: called with a job whose lease is gone. stop: called when too many calls hang."""

    def __init__(
        self,
        worker_id: str,
        clock: Clock,
        slots: Slots,
        ends: Ends,
        threads: Sequence[DaemonThreads],
        options: WorkerOptions,
        *,
        lost: Callable[[LeasedJob], None],
        stop: Callable[[], None],
    ) -> None:
        self._worker_id = worker_id
        self._clock = clock
        self._slots = slots
        self._ends = ends
        self._threads = threads
        self._options = options
        self._lost = lost
        self._stop = stop
        self.worn_out = False
        """True once there were too many calls that hang."""

    @property
    def hung(self) -> int:
        """See `Worker.hung`."""
        before = time.monotonic() - self._options.grace
        return len(self._slots.abandoned) + sum(threads.lost(before) for threads in self._threads)

    async def run_forever(self) -> None:
        """One timer for all running attempts and steps: one for each step would cost more than a short step does."""
        looked = time.monotonic()
        while True:
            await asyncio.sleep(ANNOUNCE_AFTER)
            now, clock_now = time.monotonic(), self._clock.monotonic()
            late, looked = max(0.0, now - looked - 2 * ANNOUNCE_AFTER), now
            for task, leased in list(self._slots.running.items()):
                if leased.run is not None:
                    leased.run.announce_steps(now)
                    if leased.run.stuck is not None:
                        leased.run.stuck.look(clock_now, late)
                    if leased.run.must_have_ended(clock_now):
                        self.abandon(task, leased)
            if not self.worn_out and (hung := self.hung) >= (most := self._options.most_hung):
                self.worn_out = True
                log.error(
                    "too many calls hang in this process: it stops, and is to be replaced",
                    worker=self._worker_id,
                    hung=hung,
                    most=most,
                )
                self._stop()

    def abandon(self, task: asyncio.Task[None], leased: LeasedJob) -> None:
        """End an attempt whose handler does not stop. The slot is free, the task or thread goes on as long as it likes."""
        assert leased.run is not None
        outcome = leased.run.abandon()
        self._slots.abandon(task)
        log.error(
            "a handler does not stop: its attempt ends without it",
            worker=self._worker_id,
            job_id=str(leased.claimed.id),
            kind=leased.claimed.kind,
            attempt=leased.claimed.lease.attempt,
            reason=leased.run.stop_reason,
            grace=self._options.grace,
        )
        if outcome is None:
            self._lost(leased)
        else:
            self._ends.add(leased, outcome)
