"""Changes of several jobs in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from perdure.model.errors import PerdureError
from perdure.model.events import NewEvent
from perdure.model.ids import hash_json, new_event_id
from perdure.model.job_changes import Cancelling, Changed, Editing, JobChange, MakingDue
from perdure.model.jobs import NewJob
from perdure.model.states import Status
from perdure.store.job_edits import changes_of, check_editable, check_payload_editable, note_of_edit
from perdure.store.sqlite.engine.codec import CODEC, micros
from perdure.store.sqlite.engine.locked_job import LockedJob
from perdure.store.sqlite.engine.statements import SQL, write_rows
from perdure.store.sqlite.jobs.control import cancel, check_batch_ended, retry_now
from perdure.store.sqlite.jobs.enqueue import enqueue_recorded


def change_jobs(
    conn: sqlite3.Connection, now: int, tenant_id: str, job_ids: Sequence[UUID], change: JobChange, note: str
) -> list[Changed]:
    """See `protocol.JobStore.change_jobs`."""
    done: list[Changed] = []
    for job_id in job_ids:
        try:
            done.append(Changed(job_id, _change(conn, now, tenant_id, job_id, change, note)))
        except PerdureError as error:  # raised before anything of this job is written
            done.append(Changed(job_id, False, error))
    return done


def _change(conn: sqlite3.Connection, now: int, tenant_id: str, job_id: UUID, change: JobChange, note: str) -> bool:
    match change:
        case Cancelling(force):
            cancel(conn, now, tenant_id, job_id, note, force)
            return True
        case MakingDue():
            return retry_now(conn, now, tenant_id, job_id, note)
        case Editing():
            return _edit(conn, now, tenant_id, job_id, change, note)


def _edit(conn: sqlite3.Connection, now: int, tenant_id: str, job_id: UUID, edit: Editing, note: str) -> bool:
    job = LockedJob(conn, job_id, tenant_id)
    check_editable(job_id, job.status, edit)
    if edit.timed:
        check_batch_ended(conn, job, job_id)
    row = conn.execute(SQL["job_to_edit"], {"job_id": job.id}).fetchone()
    if edit.payload is not None:
        check_payload_editable(row["kind"])
    at = row["run_at"] if job.status is Status.PENDING else row["next_retry_at"]
    new_at = edit.run_at
    if new_at is None and edit.delay is not None:
        new_at = CODEC.time(now) + timedelta(seconds=edit.delay)
    changes = changes_of(
        edit, priority=row["priority"], at=None if at is None else CODEC.time(at), new_at=new_at, payload=row["payload"]
    )
    if not changes:
        return False
    version = job.head + 1
    event = (job.id, version, job.attempt, new_event_id(), "job_edited", note_of_edit(note, changes))
    write_rows(conn, "append_many", [event], now=now)
    values = {
        "job_id": job.id,
        "version": version,
        "now": now,
        "priority": edit.priority,
        "at": micros(new_at),
        "payload": edit.payload,
        "payload_hash": None if edit.payload is None or row["idempotency_key"] is None else hash_json(edit.payload),
    }
    conn.execute(SQL["edit_job"], values)
    conn.execute(SQL["edit_queue_row"], {"job_id": job.id, "priority": edit.priority, "at": micros(new_at)})
    return True


def rerun_jobs(
    conn: sqlite3.Connection,
    now: int,
    tenant_id: str,
    jobs: Sequence[NewJob],
    first: Mapping[UUID, Sequence[NewEvent]],
) -> list[bool]:
    """See `protocol.JobStore.rerun_jobs`."""
    again = rerun_of(conn, [job.origin_id for job in jobs if job.origin_id is not None])
    stored = []
    for job in jobs:
        place = {"job_id": str(job.origin_id), "tenant_id": tenant_id}
        wanted = job.origin_id not in again and conn.execute(SQL["lock_job"], place).fetchone() is not None
        if wanted:
            wanted = enqueue_recorded(conn, now, tenant_id, job, first.get(job.id, ()), None).created
        stored.append(wanted)
    return stored


def rerun_of(conn: sqlite3.Connection, job_ids: Sequence[UUID]) -> set[UUID]:
    """See `protocol.JobStore.rerun_of`."""
    rows = conn.execute(SQL["rerun_of"], {"ids": json.dumps([str(id) for id in job_ids])})
    return {UUID(row["id"]) for row in rows}
