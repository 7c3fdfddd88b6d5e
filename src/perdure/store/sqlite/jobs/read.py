"""Reading jobs, their events and their runs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from perdure.model.jobs import JobFilter
from perdure.model.states import LEASED, TERMINAL, WITHOUT_RESULT, Status
from perdure.store.rows import Row
from perdure.store.sqlite.engine.codec import json_list, micros
from perdure.store.sqlite.engine.statements import SQL

_LONGEST_STEP = 5000

_SOURCES: tuple[tuple[frozenset[Status], str], ...] = (
    (LEASED, "leased_ids"),
    (frozenset({Status.PENDING, Status.RETRY}), "queued_ids"),
    (frozenset(Status) - TERMINAL, "live_ids"),
    (WITHOUT_RESULT, "failed_ids"),
)


def filter_values(filter: JobFilter, tenant_id: str) -> dict[str, Any]:
    """The parameters that narrow a list or a count."""
    return {
        "tenant_id": tenant_id,
        "statuses": json_list(filter.statuses),
        "kinds": json_list(filter.kinds),
        "queues": json_list(filter.queues),
        "since": micros(filter.since),
        "until": micros(filter.until),
        "search": filter.search,
        "key": filter.idempotency_key,
        "tags": json_list(filter.tags),
        "agent": filter.agent_id,
        "session": filter.session_id,
    }


def source_of(filter: JobFilter) -> str | None:
    """The statement that names all jobs of the wanted states, tags or agent; None where they are found in history alone."""
    wanted = frozenset(filter.statuses)
    if filter.agent_id is not None and not (wanted and wanted <= LEASED):
        return "agent_ids"
    if filter.tags and not (wanted and wanted <= LEASED):
        return "tagged_ids" if len(filter.tags) == 1 else "any_tagged_ids"
    return next((source for statuses, source in _SOURCES if wanted and wanted <= statuses), None)


def list_jobs(
    conn: sqlite3.Connection, filter: JobFilter, tenant_id: str, before: UUID | None, limit: int
) -> list[Row]:
    """Via a small table that names all jobs of the wanted statuses, if there is one, else through history; of that, through no
    more than what is of the wanted kind."""
    start = None if before is None else str(before)
    values = filter_values(filter, tenant_id)
    source = source_of(filter)
    if source is None:
        values |= {"before": start, "limit": limit}
        if len(filter.kinds) == 1:
            return conn.execute(SQL["list_jobs_of_kind"], values | {"kind": filter.kinds[0]}).fetchall()
        return conn.execute(SQL["list_jobs"], values).fetchall()
    rows: list[Row] = []
    step = limit
    while len(rows) < limit:
        ids = [row["job_id"] for row in conn.execute(SQL[source], values | {"before": start, "limit": step})]
        some = values | {"ids": json.dumps(ids), "limit": limit - len(rows)}
        rows += conn.execute(SQL["list_some_jobs"], some)
        if len(ids) < step:
            break
        start, step = ids[-1], min(step * 4, _LONGEST_STEP)
    return rows


def event_values(
    job_id: UUID, tenant_id: str, *, after: int, limit: int, types: Sequence[str] | None
) -> dict[str, Any]:
    """The parameters of `list_events`."""
    return {
        "tenant_id": tenant_id,
        "job_id": str(job_id),
        "after": after,
        "limit": limit,
        "types": None if types is None else json.dumps(list(types)),
    }
