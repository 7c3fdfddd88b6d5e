"""Changes of several jobs in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from perdure.model.errors import PerdureError
from perdure.model.events import NewEvent
from perdure.model.ids import hash_json, new_event_id
from perdure.model.job_changes import Cancelling, Changed, Editing, JobChange, MakingDue
from perdure.model.jobs import NewJob
from perdure.model.states import Status
from perdure.store.errors import job_not_found
from perdure.store.job_edits import changes_of, check_editable, check_payload_editable, note_of_edit
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Database, Transaction
from perdure.store.postgres.engine.locked_job import lock_job
from perdure.store.postgres.jobs.control import cancel_in, check_batch_ended, retry_now_in
from perdure.store.postgres.jobs.enqueue_many import recorded_in


async def change_jobs(
    database: Database, tenant_id: str, job_ids: Sequence[UUID], change: JobChange, *, note: str
) -> list[Changed]:
    """See `protocol.JobStore.change_jobs`."""

    async def work(tx: Transaction) -> list[Changed]:
        done: dict[UUID, Changed] = {}
        for job_id in sorted({*job_ids}):
            try:
                done[job_id] = Changed(job_id, await _change(tx, tenant_id, job_id, change, note))
            except PerdureError as error:  # raised before anything of this job is written
                done[job_id] = Changed(job_id, False, error)
        return [done[job_id] for job_id in job_ids]

    return await database.transact(work)


async def _change(tx: Transaction, tenant_id: str, job_id: UUID, change: JobChange, note: str) -> bool:
    match change:
        case Cancelling(force):
            await cancel_in(tx, tenant_id, job_id, note=note, force=force)
            return True
        case MakingDue():
            return await retry_now_in(tx, tenant_id, job_id, note=note)
        case Editing():
            return await _edit(tx, tenant_id, job_id, change, note)


async def _edit(tx: Transaction, tenant_id: str, job_id: UUID, edit: Editing, note: str) -> bool:
    job = await lock_job(tx, job_id, tenant_id)
    check_editable(job_id, job.status, edit)
    if edit.timed:
        await check_batch_ended(tx, job)
    row = await tx.row("job_to_edit", job_id=job_id)
    if row is None:
        raise job_not_found(job_id)
    if edit.payload is not None:
        check_payload_editable(row["kind"])
    at = row["run_at"] if job.status is Status.PENDING else row["next_retry_at"]
    new_at = edit.run_at
    if new_at is None and edit.delay is not None:
        new_at = CODEC.time(row["now"]) + timedelta(seconds=edit.delay)
    changes = changes_of(
        edit, priority=row["priority"], at=None if at is None else CODEC.time(at), new_at=new_at, payload=row["payload"]
    )
    if not changes:
        return False
    await tx.rows(
        "edit_job",
        job_id=job_id,
        version=job.version,
        event_id=new_event_id(),
        note=note_of_edit(note, changes),
        priority=edit.priority,
        at=new_at,
        payload=edit.payload,
        payload_hash=None if edit.payload is None or row["idempotency_key"] is None else hash_json(edit.payload),
    )
    await tx.rows("edit_queue_row", job_id=job_id, priority=edit.priority, at=new_at)
    return True


async def rerun_jobs(
    database: Database, tenant_id: str, jobs: Sequence[NewJob], first: Mapping[UUID, Sequence[NewEvent]]
) -> list[bool]:
    """See `protocol.JobStore.rerun_jobs`."""

    async def work(tx: Transaction) -> list[bool]:
        old = sorted({job.origin_id for job in jobs if job.origin_id is not None})
        there = {id for id in old if await tx.row("lock_job", job_id=id, tenant_id=tenant_id) is not None}
        again = {row["id"] for row in await tx.rows("rerun_of", ids=old)}
        stored = []
        for job in jobs:
            wanted = job.origin_id in there and job.origin_id not in again
            if wanted:
                wanted = (await recorded_in(tx, tenant_id, job, first.get(job.id, ()))).created
            stored.append(wanted)
        return stored

    return await database.transact(work)


async def rerun_of(database: Database, job_ids: Sequence[UUID]) -> set[UUID]:
    """See `protocol.JobStore.rerun_of`."""
    return {row["id"] for row in await database.rows("rerun_of", ids=list(job_ids))}
