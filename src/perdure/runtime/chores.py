"""What every worker does beside its jobs: it takes over the jobs of dead workers, applies deadlines to jobs that no worker holds,
and prunes."""

from __future__ import annotations

import asyncio
import random

import structlog

from perdure.model.errors import PerdureError
from perdure.model.states import Status
from perdure.runtime.retention import Retention, RetentionChore
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.chores")

INTERVAL = 5.0
"""Seconds between two runs of the chores."""
BATCH = 100
"""Jobs or approvals of one statement."""


class Chores:
    """Runs each chore every 5 s (jittered). All workers do so; only retention is done by one worker at a time."""

    def __init__(
        self, store: Store, worker_id: str, *, every: float = INTERVAL, retention: Retention | None = None
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._every = every
        self._chores = [self._reap, self._expire]
        if retention is not None:
            self._chores.append(RetentionChore(store, worker_id, retention).run)

    async def run_forever(self) -> None:
        """Run until cancelled; a database that does not answer is logged."""
        while True:
            await asyncio.sleep(self._every * random.uniform(0.5, 1.0))
            await self.run_once()

    async def run_once(self) -> None:
        """Reap and expire until nothing is left to do, and prune for a while. A chore that fails is logged; the others run, and
        it runs again next time."""
        for chore in self._chores:
            try:
                await chore()
            except PerdureError as error:
                log.warning("a chore failed", worker=self._worker_id, error=str(error))

    async def _reap(self) -> None:
        while reaped := await self._store.leases.reap(worker_id=self._worker_id, limit=BATCH):
            for job in reaped:
                log_line = log.error if job.status is Status.DEADLETTER else log.warning
                log_line(
                    "took a job from a lost lease",
                    worker=self._worker_id,
                    job_id=str(job.job_id),
                    now=job.status,
                    lost_worker=job.worker_id,
                )
            if len(reaped) < BATCH:
                break

    async def _expire(self) -> None:
        while await self._store.leases.expire(limit=BATCH) >= BATCH:
            pass
