"""Jobs as people and programs look at them."""

from __future__ import annotations

import json
from typing import Any, Literal

from perdure.model.jobs import Job, JobFilter, Page
from perdure.model.states import LEASED, Status
from perdure.store.errors import parse_cursor
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Database, Transaction
from perdure.store.rows import Row, job_of

SOURCES: dict[Status, tuple[str, ...]] = {
    Status.PENDING: ("queue",),
    Status.RETRY: ("queue",),
    Status.RUNNING: ("claims",),
    Status.WAITING: ("claims",),
    Status.PARKED: ("waits", "due"),  # without any wait it is due at once
    Status.WAITING_FOR_APPROVAL: ("waits", "due"),
    Status.FAILED: ("FAILED",),
    Status.DEADLETTER: ("DEADLETTER",),
    Status.CANCELLED: ("CANCELLED",),
}
"""The tables, or parts of `job_failures`, that name every job of a state; one that is missing here is found in `jobs` alone."""


def job_of_row(row: Row) -> Job:
    """A row of `get_job` or `list_jobs`."""
    return job_of({**row, "cursor": _key_of(row["last_step"])}, CODEC)


async def list_jobs(
    database: Database, tenant_id: str, filter: JobFilter, *, limit: int, cursor: str | None
) -> Page[Job]:
    """See `protocol.JobStore.list_jobs`."""
    before = parse_cursor(cursor)

    async def work(tx: Transaction) -> list[Row]:
        await tx.rows("by_index")
        return await tx.rows(
            "list_jobs",
            tenant_id=tenant_id,
            before=before,
            **_conditions(filter),
            limit=limit + 1,
            sources=_sources(filter),
        )

    rows = await database.transact(work)
    items = tuple(job_of_row(row) for row in rows[:limit])
    return Page(items, str(items[-1].id) if items and len(rows) > limit else None)


async def count_jobs(
    database: Database, tenant_id: str, filter: JobFilter, *, by: Literal["status", "kind", "queue"]
) -> dict[str, int]:
    """See `protocol.JobStore.count_jobs`."""
    conditions = _conditions(filter)
    if by == "status" and filter.only_queued:
        rows = await database.rows("count_queued", tenant_id=tenant_id, statuses=conditions["statuses"])
    elif small := _small_tables(filter):
        rows = await database.rows("count_some_jobs", tenant_id=tenant_id, by=by, **conditions, sources=small)
    else:
        rows = await database.rows("count_jobs", tenant_id=tenant_id, by=by, **conditions)
    return {row["grp"]: row["n"] for row in rows}


def _conditions(filter: JobFilter) -> dict[str, Any]:
    """What a job must be; null = any."""
    return {
        "statuses": [status.value for status in filter.statuses] or None,
        "kinds": list(filter.kinds) or None,
        "queues": list(filter.queues) or None,
        "since": filter.since,
        "until": filter.until,
        "search": filter.search,
        "key": filter.idempotency_key,
        "tags": list(filter.tags) or None,
        "agent": filter.agent_id,
        "session": filter.session_id,
    }


def _small_tables(filter: JobFilter) -> list[str]:
    """Those that name all jobs of the wanted states, tags or agent; none where some are found in history alone."""
    leased = bool(filter.statuses) and LEASED.issuperset(filter.statuses)
    if filter.agent_id is not None and not leased:
        return ["agent"]
    if filter.tags and not leased:
        return ["tag" if len(filter.tags) == 1 else "tags"]
    sources = {source for status in filter.statuses for source in SOURCES.get(status, ("all",))}
    return [] if "all" in sources else sorted(sources)


def _sources(filter: JobFilter) -> list[str]:
    """Where a list reads: history only where it is asked for, and of that no more than what is of the wanted kind."""
    return _small_tables(filter) or (["kind"] if len(filter.kinds) == 1 else ["all"])


def _key_of(payload: str | None) -> str | None:
    """The step of a `node_finished` payload. Not taken apart in SQL: PostgreSQL cannot where it holds a \\u0000."""
    key: str | None = None if payload is None else json.loads(payload).get("key")
    return key
