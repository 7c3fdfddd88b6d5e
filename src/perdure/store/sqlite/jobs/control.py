"""What people and programs change about a job: append to its log, cancel it, make it due."""

from __future__ import annotations

import sqlite3
from uuid import UUID

from perdure.model.events import NewEvent
from perdure.model.states import Status
from perdure.store.errors import finished, job_leased, not_retryable, version_mismatch, waits_for_batch
from perdure.store.sqlite.engine.locked_job import LockedJob
from perdure.store.sqlite.engine.statements import SQL


def append(
    conn: sqlite3.Connection, now: int, tenant_id: str, job_id: UUID, expected_version: int, event: NewEvent
) -> int:
    """See `protocol.JobStore.append`."""
    job = LockedJob(conn, job_id, tenant_id)
    written = conn.execute(SQL["find_event"], {"job_id": job.id, "event_id": event.event_id}).fetchone()
    if written is not None:
        version: int = written["version"]
        return version
    if job.claim is not None:
        raise job_leased(job_id, job.claim["worker_id"])
    if job.status.terminal:
        raise finished(job_id, job.status, "written to")
    if job.head != expected_version:
        raise version_mismatch(job_id, expected_version, job.head)
    return job.write_event(conn, now, event.type, event.payload, event.event_id)


def cancel(conn: sqlite3.Connection, now: int, tenant_id: str, job_id: UUID, note: str, force: bool) -> Status:
    """See `protocol.JobStore.cancel`."""
    job = LockedJob(conn, job_id, tenant_id)
    if job.status is Status.CANCELLED:
        return job.status
    if job.status.terminal:
        raise finished(job_id, job.status, "cancelled")
    claim = job.claim
    if claim is not None and job.leased(now) and not force:
        if claim["cancel_requested_at"] is None:
            job.write_event(conn, now, "cancel_requested", note)
            conn.execute(SQL["request_cancel"], {"job_id": job.id, "now": now, "note": note})
        return job.status
    if claim is not None:
        conn.execute(SQL["drop_claim"], {"job_id": job.id})
        if claim["started"]:
            run = {
                "job_id": job.id,
                "attempt": claim["attempt"],
                "worker_id": claim["worker_id"],
                "claimed_at": claim["claimed_at"],
                "now": now,
            }
            conn.execute(SQL["fenced_run"], run)
    conn.execute(SQL["cancel_job"], {"job_id": job.id, "version": job.head, "now": now, "note": note})
    return Status.CANCELLED


def retry_now(conn: sqlite3.Connection, now: int, tenant_id: str, job_id: UUID, note: str) -> bool:
    """See `protocol.JobStore.retry_now`. False: it was due already."""
    job = LockedJob(conn, job_id, tenant_id)
    if job.status is Status.PARKED and conn.execute(SQL["waits_for_code"], {"job_id": job.id}).fetchone() is not None:
        if not conn.execute(SQL["answer_code_waits"], {"job_id": job.id, "now": now}).rowcount:
            return False
        job.write_event(conn, now, "made_due", note)
        return True
    if job.status not in (Status.RETRY, Status.PENDING):
        raise not_retryable(job_id, job.status)
    check_batch_ended(conn, job, job_id)
    if conn.execute(SQL["make_due"], {"job_id": job.id, "now": now}).rowcount != 1:
        return False
    # the event comes last: its time is that of the change
    conn.execute(SQL["make_due_job"], {"job_id": job.id, "now": now})
    job.write_event(conn, now, "made_due", note)
    return True


def check_batch_ended(conn: sqlite3.Connection, job: LockedJob, job_id: UUID) -> None:
    """Raises IllegalTransition for the callback of a batch that has not ended."""
    if job.status is Status.PENDING and conn.execute(SQL["waits_for_batch"], {"job_id": job.id}).fetchone() is not None:
        raise waits_for_batch(job_id)
