"""What decides whether a job moves, as of one moment."""

from __future__ import annotations

from uuid import UUID

from perdure.model.explanation import MOST_AHEAD, NEWEST_EVENTS, Situation, kinds_served
from perdure.store.errors import job_not_found
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.jobs.read import job_of_row
from perdure.store.postgres.limits.limits import read_limit
from perdure.store.rows import approval_of, event_of, worker_of


async def read_situation(tx: Transaction, tenant_id: str, job_id: UUID) -> Situation:
    """See `protocol.JobStore.situation`. The transaction is one snapshot."""
    row = await tx.row("get_job", job_id=job_id, tenant_id=tenant_id)
    if row is None:
        raise job_not_found(job_id)
    job = job_of_row(row)
    now = await tx.row("db_now")
    assert now is not None
    lease = await tx.row("lease_holder", job_id=job_id)
    before = max(0, job.version - NEWEST_EVENTS)
    rows = await tx.rows("list_workers", tenant_id=tenant_id, include_stopped=False)
    workers = tuple(worker_of(row, CODEC) for row in rows)
    approvals = await tx.rows("approvals_awaited", job_id=job_id)
    events = await tx.rows(
        "list_events", job_id=job_id, after=before, limit=NEWEST_EVENTS, types=None, tenant_id=tenant_id
    )
    return Situation(
        now=CODEC.time(now["now"]),
        job=job,
        workers=workers,
        holder=None if lease is None or lease["id"] is None else worker_of(lease, CODEC),
        claimed_at=None if lease is None else CODEC.time(lease["claimed_at"]),
        approvals=tuple(approval_of(row, CODEC) for row in approvals),
        events=tuple(event_of(row, CODEC) for row in events),
        limit=await read_limit(tx, tenant_id, job.concurrency_key) if job.held and job.concurrency_key else None,
        ahead=await _ahead(
            tx, job_id, kinds_served(job, workers)
        ),  # last: it changes the planner's settings for the rest of the transaction
    )


async def _ahead(tx: Transaction, job_id: UUID, kinds: list[str]) -> int:
    place = await tx.row("place_in_queue", job_id=job_id)
    if place is None or not place["due"]:
        return 0
    await tx.rows("by_index")
    counted = await tx.row(
        "jobs_ahead",
        lane=place["lane"],
        kinds=kinds,
        higher=list(range(place["priority"] + 1, 10)),
        priority=place["priority"],
        run_at=place["run_at"],
        job_id=job_id,
        limit=MOST_AHEAD,
    )
    assert counted is not None
    number: int = counted["n"]
    return min(number, MOST_AHEAD)
