"""A job locked by a transaction. Lock order everywhere: job_claims, then jobs, then approvals and waits, then job_queue."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from perdure.model.ids import new_event_id
from perdure.model.jobs import Lease
from perdure.model.states import Status
from perdure.store.errors import job_not_found
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.driver_errors import Restart
from perdure.store.rows import Row


@dataclass(frozen=True, slots=True)
class LockedJob:
    """A job whose claim (if any) and row are locked by this transaction. `version` is the head of its log."""

    id: UUID
    status: Status
    version: int
    claim: Row | None

    def held_by(self, lease: Lease, tenant_id: str) -> bool:
        """Whether its claim is the live one of this lease."""
        return self.claim is not None and is_live(self.claim, lease, tenant_id)

    async def append(self, tx: Transaction, type: str, payload: str, event_id: str | None = None) -> int:
        """Append an event of perdure's own at the head of its log, leased or not; return its version."""
        event_id = event_id or new_event_id()
        if self.claim is not None:
            row = await tx.row("append_leased", job_id=self.id, event_id=event_id, type=type, payload=payload)
        else:
            row = await tx.row(
                "append_free", job_id=self.id, version=self.version, event_id=event_id, type=type, payload=payload
            )
        assert row is not None  # both rows are locked
        version: int = row["version"]
        return version


async def lock_job(tx: Transaction, job_id: UUID, tenant_id: str) -> LockedJob:
    """Lock a job in the lock order. Raises JobNotFound."""
    claim = await tx.row("lock_claim", job_id=job_id)
    job = await tx.row("lock_job", job_id=job_id, tenant_id=tenant_id)
    if job is None:
        raise job_not_found(job_id)
    status = Status(job["status"])
    if status.leased and claim is None:
        raise Restart("claimed between the two locks")  # asking for the claim now would turn the order round
    return LockedJob(job_id, status, job["version"] if claim is None else claim["version"], claim)


def is_live(claim: Row, lease: Lease, tenant_id: str) -> bool:
    """Whether a row of `lock_claim` is the live claim of this lease."""
    held = (claim["tenant_id"], claim["attempt"], claim["worker_id"])
    return bool(claim["live"]) and held == (tenant_id, lease.attempt, lease.worker_id)
