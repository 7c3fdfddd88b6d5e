"""What decides whether a job moves, as of one moment."""

from __future__ import annotations

import json
import sqlite3
from uuid import UUID

from perdure.model.account_choice import TaskGroup, without_account
from perdure.model.explanation import (
    MOST_AHEAD,
    NEWEST_EVENTS,
    SHOWN_AWAITED,
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
from perdure.store.queue_rows import pause_of
from perdure.store.rows import approval_of, event_of, job_of, worker_of
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.jobs.read import event_values
from perdure.store.sqlite.limits.limits import read_limit
from perdure.store.task_rows import account_of


def read_situation(conn: sqlite3.Connection, tenant_id: str, job_id: UUID) -> Situation:
    """See `protocol.JobStore.situation`."""
    id = {"job_id": str(job_id)}
    row = conn.execute(SQL["get_job"], {**id, "tenant_id": tenant_id}).fetchone()
    if row is None:
        raise job_not_found(job_id)
    job = job_of(row, CODEC)
    lease = conn.execute(SQL["lease_holder"], id).fetchone()
    after = max(0, job.version - NEWEST_EVENTS)
    log = event_values(job_id, tenant_id, after=after, limit=NEWEST_EVENTS, types=None)
    rows = conn.execute(SQL["list_workers"], {"tenant_id": tenant_id, "include_stopped": False})
    workers = tuple(worker_of(row, CODEC) for row in rows)
    of_limit = read_limit(conn, tenant_id, job.concurrency_key) if job.held and job.concurrency_key else None
    agent = (
        None if job.agent_id is None else conn.execute(SQL["agent_of_job"], {**id, "tenant_id": tenant_id}).fetchone()
    )
    parked = conn.execute(SQL["parked_by"], id).fetchone() if job.status is Status.PARKED else None
    pause = conn.execute(SQL["open_pause"], {"lane": lane_of(tenant_id, job.queue)}).fetchone()
    return Situation(
        now=CODEC.time(conn.execute(SQL["db_now"]).fetchone()["now"]),
        job=job,
        workers=workers,
        holder=None if lease is None or lease["id"] is None else worker_of(lease, CODEC),
        claimed_at=None if lease is None else CODEC.time(lease["claimed_at"]),
        approvals=tuple(approval_of(a, CODEC) for a in conn.execute(SQL["approvals_awaited"], id)),
        events=tuple(event_of(e, CODEC) for e in conn.execute(SQL["list_events"], log)),
        limit=of_limit,
        before=0 if of_limit is None else conn.execute(SQL["held_before"], {**id, "limit": MOST_AHEAD}).fetchone()["n"],
        agent=None if agent is None else job_agent_of(agent, CODEC).agent,
        parked_by=None if parked is None else parked["version"],
        account=_without_account(conn, tenant_id, job),
        awaited=tuple(
            awaited_of(row, CODEC)
            for row in conn.execute(SQL["awaited_children"], {**id, "limit": SHOWN_AWAITED})
            if any(wait.kind == CHILD.name for wait in job.waits)
        ),
        pause=None if pause is None else pause_of(pause, CODEC),
        ahead=_ahead(conn, str(job_id), kinds_served(job, workers)),
    )


def _without_account(conn: sqlite3.Connection, tenant_id: str, job: Job) -> NoAccount | None:
    place = conn.execute(SQL["place_in_queue"], {"job_id": str(job.id)}).fetchone()
    if place is None or place["wanted_account"] is None or not place["due"] or job.held:
        return None
    accounts = [account_of(row, CODEC) for row in conn.execute(SQL["list_accounts"], {"tenant_id": tenant_id})]
    holders: dict[str, list[UUID]] = {}
    for row in conn.execute(SQL["account_holders"], {"tenant_id": tenant_id}):
        holders.setdefault(row["account_id"], []).append(UUID(row["job_id"]))
    now = CODEC.time(conn.execute(SQL["db_now"]).fetchone()["now"])
    return without_account(accounts, TaskGroup(job.kind, place["wanted_account"]), now, holders)


def _ahead(conn: sqlite3.Connection, id: str, kinds: list[str]) -> int:
    place = conn.execute(SQL["place_in_queue"], {"job_id": id}).fetchone()
    if place is None or not place["due"]:
        return 0
    values = {
        "lane": place["lane"],
        "kinds": json.dumps(kinds),
        "higher": json.dumps(list(range(place["priority"] + 1, 10))),
        "priority": place["priority"],
        "run_at": place["run_at"],
        "job_id": id,
        "most": MOST_AHEAD,
    }
    counted: int = conn.execute(SQL["jobs_ahead"], values).fetchone()["n"]
    return min(counted, MOST_AHEAD)
