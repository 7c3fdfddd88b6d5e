"""What every worker does for everybody: taking jobs from dead workers, the deadlines of what no worker holds, and retention."""

from __future__ import annotations

import asyncio
import random

import structlog

from perdure.model.errors import PerdureError
from perdure.model.states import Status
from perdure.runtime.retention import Retention, RetentionChore
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.chores")

EVERY = 5.0
BATCH = 100


class Chores:
    """Runs each chore every 5 s (jittered), any number of workers at once; no worker is elected, but for retention."""

    def __init__(
        self, store: Store, worker_id: str, *, every: float = EVERY, retention: Retention | None = None
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._every = every
        self._chores = [self._reap, self._expire]
        if retention is not None:
            self._chores.append(RetentionChore(store, worker_id, retention).run)

    async def run_forever(self) -> None:
        """Until cancelled; survives a database that is away."""
        while True:
            await asyncio.sleep(self._every * random.uniform(0.5, 1.0))
            await self.run_once()

    async def run_once(self) -> None:
        """Reap and expire until nothing is left to do, prune for a while. A chore that fails is logged and does not keep the
        others from their work; all come round again."""
        for chore in self._chores:
            try:
                await chore()
            except PerdureError as error:
                log.warning("a chore failed", worker=self._worker_id, error=str(error))

    async def _reap(self) -> None:
        while reaped := await self._store.leases.reap(worker_id=self._worker_id, limit=BATCH):
            for job in reaped:
                tell = log.error if job.status is Status.DEADLETTER else log.warning
                tell(
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
