"""Jobs that were lost together with others of their worker, more than once: one of them may end the process it runs in. Each of
them runs alone for a while, so that a crash says which one it is and takes no other job along."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

import structlog

from perdure.model.jobs import SUSPECT_AT
from perdure.runtime.ends import Ends
from perdure.runtime.lease import LeasedJob, LeaseManager
from perdure.runtime.outcomes import hand_back
from perdure.runtime.prefetch import Buffer
from perdure.runtime.slots import Slots

log = structlog.get_logger("perdure.worker")

OTHERS_WAIT = 2.0
"""Seconds a suspect waits for the other attempts to end. Those that take longer go on running."""
ALONE = 5.0
"""Seconds for which no other job is started. One that runs longer is not alone any more."""
NEXT_AFTER = 1.0
"""Seconds until another suspect that was claimed with it is due again, and so on for each."""

WaitForChange = Callable[[float], Awaitable[None]]
"""Returns when something has ended, and after so many seconds at the latest."""


def suspects_among(claimed: Sequence[LeasedJob]) -> list[LeasedJob]:
    """Those of claimed jobs that are to run alone."""
    return [leased for leased in claimed if leased.claimed.suspicion >= SUSPECT_AT]


class Suspects:
    """Runs suspects in the slots of a worker, which claims no other job meanwhile."""

    def __init__(
        self,
        slots: Slots,
        buffer: Buffer,
        ends: Ends,
        leases: LeaseManager,
        *,
        stopping: Callable[[], bool],
        wait_for_change: WaitForChange,
    ) -> None:
        self._slots = slots
        self._buffer = buffer
        self._ends = ends
        self._leases = leases
        self._stopping = stopping
        self._wait_for_change = wait_for_change

    async def run(self, suspects: Sequence[LeasedJob]) -> None:
        """Run the first of them alone, until it has ended or has run for a while; hand back the others, and what is buffered."""
        first, *others = suspects
        for leased in self._buffer.take_all():
            self._ends.add(leased, hand_back("claimed_too_early", started=False))
        for place, leased in enumerate(others, 1):
            self._ends.add(leased, hand_back("runs_alone", started=False)._replace(delay=place * NEXT_AFTER))
        await self._until(lambda: not self._slots.running, OTHERS_WAIT)
        self._buffer.put_all([first])
        if self._stopping():
            return  # it is handed back with the others
        claimed = first.claimed
        log.info(
            "a job that was lost together with others runs alone",
            job_id=str(claimed.id),
            kind=claimed.kind,
            suspicion=claimed.suspicion,
            others=len(self._slots.running),
        )
        self._slots.fill()
        await self._until(lambda: self._leases.jobs.get(claimed.id) is not first, ALONE)

    async def _until(self, over: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not over() and not self._stopping() and (left := deadline - time.monotonic()) > 0:
            await self._wait_for_change(min(0.2, left))
