"""What decides whether a job moves, as of one moment."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from perdure.model.account_choice import TaskGroup, without_account
from perdure.model.explanation import (
    MOST_AHEAD,
    NEWEST_EVENTS,
    SHOWN_AWAITED,
    Awaited,
    NoAccount,
    Situation,
    kinds_served,
)
from perdure.model.jobs import Job, lane_of
from perdure.model.states import Status
from perdure.model.waits import CHILD
from perdure.store.agent_rows import job_agent_of
from perdure.store.child_rows import awaited_of
from perdure.store.errors import job_not_found
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.jobs.read import job_of_row
from perdure.store.postgres.limits.limits import read_limit
from perdure.store.queue_rows import pause_of
from perdure.store.rows import approval_of, event_of, worker_of
from perdure.store.task_rows import account_of


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
    pause = await tx.row("open_pause", lane=lane_of(tenant_id, job.queue))
    of_limit = await read_limit(tx, tenant_id, job.concurrency_key) if job.held and job.concurrency_key else None
    ahead = None if of_limit is None else await tx.row("held_before", job_id=job_id, limit=MOST_AHEAD)
    agent = None if job.agent_id is None else await tx.row("agent_of_job", tenant_id=tenant_id, job_id=job_id)
    parked = await tx.row("parked_by", job_id=job_id) if job.status is Status.PARKED else None
    return Situation(
        now=CODEC.time(now["now"]),
        job=job,
        workers=workers,
        holder=None if lease is None or lease["id"] is None else worker_of(lease, CODEC),
        claimed_at=None if lease is None else CODEC.time(lease["claimed_at"]),
        approvals=tuple(approval_of(row, CODEC) for row in approvals),
        events=tuple(event_of(row, CODEC) for row in events),
        limit=of_limit,
        before=0 if ahead is None else ahead["n"],
        agent=None if agent is None else job_agent_of(agent, CODEC).agent,
        parked_by=None if parked is None else parked["version"],
        account=await _without_account(tx, tenant_id, job, CODEC.time(now["now"])),
        awaited=await _awaited(tx, job),
        pause=None if pause is None else pause_of(pause, CODEC),
        ahead=await _ahead(
            tx, job_id, kinds_served(job, workers)
        ),  # last: it changes the planner's settings for the rest of the transaction
    )


async def _without_account(tx: Transaction, tenant_id: str, job: Job, now: datetime) -> NoAccount | None:
    place = await tx.row("place_in_queue", job_id=job.id)
    if place is None or place["wanted_account"] is None or not place["due"] or job.held:
        return None
    accounts = [account_of(row, CODEC) for row in await tx.rows("list_accounts", tenant_id=tenant_id)]
    holders: dict[str, list[UUID]] = {}
    for row in await tx.rows("account_holders", tenant_id=tenant_id):
        holders.setdefault(row["account_id"], []).append(row["job_id"])
    return without_account(accounts, TaskGroup(job.kind, place["wanted_account"]), now, holders)


async def _awaited(tx: Transaction, job: Job) -> tuple[Awaited, ...]:
    if not any(wait.kind == CHILD.name for wait in job.waits):
        return ()
    return tuple(
        awaited_of(row, CODEC) for row in await tx.rows("awaited_children", job_id=job.id, limit=SHOWN_AWAITED)
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
