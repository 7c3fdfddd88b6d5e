"""What people and programs change about a job that no worker holds, or ask of the worker that does."""

from __future__ import annotations

from uuid import UUID

from perdure.model.events import NewEvent
from perdure.model.states import Status
from perdure.store.errors import finished, job_leased, not_retryable, version_mismatch
from perdure.store.postgres.engine.hot_writer import Base
from perdure.store.postgres.engine.transactions import Held, Tx


class Changes(Base):
    """See `protocol.JobStore`."""

    async def append(self, job_id: UUID, expected_version: int, event: NewEvent) -> int:
        """See `protocol.JobStore.append`."""

        async def work(tx: Tx) -> int:
            job = await tx.lock(job_id)
            written = await tx.row("find_event", job_id, event.event_id)
            if written is not None:
                version: int = written["version"]
                return version
            if job.claim is not None:
                raise job_leased(job_id, job.claim["worker_id"])
            if job.status.terminal:
                raise finished(job_id, job.status, "appended to")
            if job.version != expected_version:
                raise version_mismatch(job_id, expected_version, job.version)
            return await tx.write_event(job, event.type, event.payload, event.event_id)

        version = await self._db.transact(work)
        self._bell.ring("news")
        return version

    async def cancel(self, job_id: UUID, *, note: str, force: bool = False) -> Status:
        """See `protocol.JobStore.cancel`."""

        async def work(tx: Tx) -> Status:
            job = await tx.lock(job_id)
            if job.status is Status.CANCELLED:
                return job.status
            if job.status.terminal:
                raise finished(job_id, job.status, "cancelled")
            if job.claim is None:
                await tx.rows("cancel_job", job_id, job.version, note)
            elif force or not job.claim["live"]:
                await _fence(tx, job, note)
            else:
                if job.claim["cancel_requested_at"] is None:
                    await tx.rows("request_cancel", job_id, note)
                    await tx.write_event(job, "cancel_requested", note)
                return job.status
            return Status.CANCELLED

        status = await self._db.transact(work)
        self._bell.ring("work", "news")
        return status

    async def retry_now(self, job_id: UUID, *, note: str) -> None:
        """See `protocol.JobStore.retry_now`."""

        async def work(tx: Tx) -> None:
            job = await tx.lock(job_id)
            if job.status not in (Status.RETRY, Status.PENDING):
                raise not_retryable(job_id, job.status)
            if await tx.row("make_due", job_id) is not None:
                await tx.write_event(job, "made_due", note)
                await tx.rows("make_due_job", job_id)

        await self._db.transact(work)
        self._bell.ring("work", "news")


async def _fence(tx: Tx, job: Held, note: str) -> None:
    """Take the lease away and commit CANCELLED in the holder's place."""
    claim = await tx.row("drop_claim", job.id)
    assert claim is not None  # it is locked
    await tx.rows("cancel_job", job.id, claim["version"], note)
    if claim["started"]:
        await tx.rows("fenced_run", job.id, claim["attempt"], claim["worker_id"], claim["claimed_at"])
