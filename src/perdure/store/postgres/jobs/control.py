"""What people and programs change about a job that no worker holds, or ask of the worker that does."""

from __future__ import annotations

from uuid import UUID

from perdure.model.events import NewEvent
from perdure.model.states import Status
from perdure.store.errors import finished, job_leased, not_retryable, version_mismatch, waits_for_batch
from perdure.store.postgres.engine.database import Database, Transaction
from perdure.store.postgres.engine.locked_job import LockedJob, lock_job


async def append(database: Database, tenant_id: str, job_id: UUID, expected_version: int, event: NewEvent) -> int:
    """See `protocol.JobStore.append`."""

    async def work(tx: Transaction) -> int:
        job = await lock_job(tx, job_id, tenant_id)
        written = await tx.row("find_event", job_id=job_id, event_id=event.event_id)
        if written is not None:
            version: int = written["version"]
            return version
        if job.claim is not None:
            raise job_leased(job_id, job.claim["worker_id"])
        if job.status.terminal:
            raise finished(job_id, job.status, "appended to")
        if job.version != expected_version:
            raise version_mismatch(job_id, expected_version, job.version)
        return await job.append(tx, event.type, event.payload, event.event_id)

    return await database.transact(work)


async def cancel(database: Database, tenant_id: str, job_id: UUID, *, note: str, force: bool) -> Status:
    """See `protocol.JobStore.cancel`."""
    return await database.transact(lambda tx: cancel_in(tx, tenant_id, job_id, note=note, force=force))


async def cancel_in(tx: Transaction, tenant_id: str, job_id: UUID, *, note: str, force: bool) -> Status:
    """`cancel`, in a transaction that does more. What it raises, it raises before it writes."""
    job = await lock_job(tx, job_id, tenant_id)
    if job.status is Status.CANCELLED:
        return job.status
    if job.status.terminal:
        raise finished(job_id, job.status, "cancelled")
    if job.claim is None:
        await tx.rows("cancel_job", job_id=job_id, version=job.version, note=note)
    elif force or not job.claim["live"]:
        await _cancel_leased(tx, job, note)
    else:
        if job.claim["cancel_requested_at"] is None:
            await tx.rows("request_cancel", job_id=job_id, note=note)
            await job.append(tx, "cancel_requested", note)
        return job.status
    return Status.CANCELLED


async def _cancel_leased(tx: Transaction, job: LockedJob, note: str) -> None:
    """Take the lease away and commit CANCELLED in the holder's place."""
    claim = await tx.row("drop_claim", job_id=job.id)
    assert claim is not None  # it is locked
    await tx.rows("cancel_job", job_id=job.id, version=claim["version"], note=note)
    if claim["started"]:
        await tx.rows(
            "fenced_run",
            job_id=job.id,
            attempt=claim["attempt"],
            worker_id=claim["worker_id"],
            claimed_at=claim["claimed_at"],
        )


async def retry_now(database: Database, tenant_id: str, job_id: UUID, *, note: str) -> None:
    """See `protocol.JobStore.retry_now`."""
    await database.transact(lambda tx: retry_now_in(tx, tenant_id, job_id, note=note))


async def retry_now_in(tx: Transaction, tenant_id: str, job_id: UUID, *, note: str) -> bool:
    """Make a job due in this transaction; False if it was due. What it raises, it raises before it writes."""
    job = await lock_job(tx, job_id, tenant_id)
    if job.status is Status.PARKED and await tx.row("waits_for_code", job_id=job_id) is not None:
        if not await tx.rows("answer_code_waits", job_id=job_id):
            return False
        await job.append(tx, "made_due", note)
        return True
    if job.status not in (Status.RETRY, Status.PENDING):
        raise not_retryable(job_id, job.status)
    await check_batch_ended(tx, job)
    if await tx.row("make_due", job_id=job_id) is None:
        return False
    await job.append(tx, "made_due", note)
    await tx.rows("make_due_job", job_id=job_id)
    return True


async def check_batch_ended(tx: Transaction, job: LockedJob) -> None:
    """Raises IllegalTransition for the callback of a batch that has not ended."""
    if job.status is Status.PENDING and await tx.row("waits_for_batch", job_id=job.id) is not None:
        raise waits_for_batch(job.id)
