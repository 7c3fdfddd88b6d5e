"""What clients do with jobs that are there: read, append, cancel, make due."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from perdure.model.events import Event, NewEvent
from perdure.model.jobs import Job, JobFilter, Page, RunRecord
from perdure.model.states import FAILURES, LEASED, TERMINAL, Status
from perdure.store.errors import (
    ambiguous_id,
    finished,
    id_suffix,
    job_leased,
    job_not_found,
    not_retryable,
    parse_cursor,
    version_mismatch,
)
from perdure.store.rows import Row, event_of, job_of, run_of
from perdure.store.sqlite.engine.base import SQL, Base, Held
from perdure.store.sqlite.engine.database import CODEC, micros
from perdure.store.sqlite.engine.writer import NEWS, WORK

_LONGEST_STEP = 5000


def texts(values: Sequence[str]) -> str | None:
    """A list that narrows a query: a JSON array, or null for any."""
    return json.dumps(list(values)) if values else None


def _where(filter: JobFilter, tenant: str) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "statuses": texts(filter.statuses),
        "kinds": texts(filter.kinds),
        "queues": texts(filter.queues),
        "since": micros(filter.since),
        "until": micros(filter.until),
        "search": filter.search,
        "key": filter.idempotency_key,
    }


_SOURCES: tuple[tuple[frozenset[Status], str], ...] = (
    (LEASED, "leased_ids"),
    (frozenset({Status.PENDING, Status.RETRY}), "queued_ids"),
    (frozenset(Status) - TERMINAL, "live_ids"),
    (FAILURES, "failed_ids"),
)


def _source(filter: JobFilter) -> str | None:
    """The statement that names all jobs of the wanted states by a small table; None where they are found in history alone."""
    wanted = frozenset(filter.statuses)
    return next((source for statuses, source in _SOURCES if wanted and wanted <= statuses), None)


def _list(conn: sqlite3.Connection, filter: JobFilter, tenant: str, before: str | None, limit: int) -> list[Row]:
    """Through a small table that names all jobs of the wanted statuses, if there is one, else through history; of that,
    through no more than what is of the wanted kind."""
    where = _where(filter, tenant) | {"before": before, "limit": limit}
    source = _source(filter)
    if source is None and len(filter.kinds) == 1:
        return conn.execute(SQL["list_jobs_of_kind"], where | {"kind": filter.kinds[0]}).fetchall()
    if source is None:
        return conn.execute(SQL["list_jobs"], where).fetchall()
    rows: list[Row] = []
    step = limit
    while len(rows) < limit:
        ids = [row[0] for row in conn.execute(SQL[source], {"before": before, "limit": step})]
        rows += conn.execute(SQL["list_some_jobs"], where | {"ids": json.dumps(ids), "limit": limit - len(rows)})
        if len(ids) < step:
            break
        before, step = ids[-1], min(step * 4, _LONGEST_STEP)
    return rows


class Jobs(Base):
    """See `protocol.JobStore`."""

    async def get_job(self, job_id: UUID) -> Job:
        """See `protocol.JobStore.get_job`."""
        row = await self._row("get_job", (str(job_id), self.tenant_id))
        if row is None:
            raise job_not_found(job_id)
        return job_of(row, CODEC)

    async def find_job(self, text: str) -> UUID:
        """See `protocol.JobStore.find_job`."""
        suffix = id_suffix(text)
        if isinstance(suffix, UUID):
            return (await self.get_job(suffix)).id
        rows = await self._rows("find_job", {"suffix": suffix, "tenant": self.tenant_id})
        if not rows:
            raise job_not_found(text)
        if len(rows) > 1:
            raise ambiguous_id(text)
        return UUID(rows[0]["id"])

    async def list_jobs(self, filter: JobFilter, *, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        """See `protocol.JobStore.list_jobs`."""
        before = parse_cursor(cursor)
        start = None if before is None else str(before)
        rows = await self._read(lambda conn: _list(conn, filter, self.tenant_id, start, limit + 1))
        jobs = tuple(job_of(row, CODEC) for row in rows[:limit])
        return Page(jobs, str(jobs[-1].id) if jobs and len(rows) > limit else None)

    async def count_jobs(self, filter: JobFilter, *, by: Literal["status", "kind", "queue"]) -> dict[str, int]:
        """See `protocol.JobStore.count_jobs`."""
        source = _source(filter)
        where = _where(filter, self.tenant_id) | {"by": by}
        if source is None:
            rows = await self._rows("count_jobs", where)
        else:
            rows = await self._rows("count_some_jobs", where | {"source": source})
        return {row["grp"]: row["n"] for row in rows}

    async def list_runs(self, job_id: UUID) -> list[RunRecord]:
        """See `protocol.JobStore.list_runs`."""
        return [run_of(row, CODEC) for row in await self._rows("list_runs", (str(job_id), self.tenant_id))]

    async def list_events(
        self, job_id: UUID, *, after: int = 0, limit: int = 1000, types: Sequence[str] | None = None
    ) -> list[Event]:
        """See `protocol.JobStore.list_events`."""
        where = {
            "tenant": self.tenant_id,
            "job_id": str(job_id),
            "after": after,
            "limit": limit,
            "types": None if types is None else json.dumps(list(types)),
        }
        return [event_of(row, CODEC) for row in await self._rows("list_events", where)]

    async def append(self, job_id: UUID, expected_version: int, event: NewEvent) -> int:
        """See `protocol.JobStore.append`."""

        def one(conn: sqlite3.Connection, now: int) -> int:
            job = Held(conn, job_id, self.tenant_id)
            written = conn.execute(SQL["find_event"], (job.id, event.event_id)).fetchone()
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

        return await self._write(one, NEWS)

    async def cancel(self, job_id: UUID, *, note: str, force: bool = False) -> Status:
        """See `protocol.JobStore.cancel`."""

        def one(conn: sqlite3.Connection, now: int) -> Status:
            job = Held(conn, job_id, self.tenant_id)
            if job.status is Status.CANCELLED:
                return job.status
            if job.status.terminal:
                raise finished(job_id, job.status, "cancelled")
            claim = job.claim
            if claim is not None and job.leased(now) and not force:
                if claim["cancel_requested_at"] is None:
                    job.write_event(conn, now, "cancel_requested", note)
                    conn.execute(SQL["request_cancel"], (now, note, job.id))
                return job.status
            if claim is not None:
                conn.execute(SQL["drop_claim"], (job.id,))
                if claim["started"]:
                    run = (job.id, claim["attempt"], claim["worker_id"], claim["claimed_at"], now)
                    conn.execute(SQL["fenced_run"], run)
            conn.execute(SQL["cancel_job"], {"id": job.id, "head": job.head, "now": now, "note": note})
            return Status.CANCELLED

        return await self._write(one, WORK | NEWS)

    async def retry_now(self, job_id: UUID, *, note: str) -> None:
        """See `protocol.JobStore.retry_now`."""

        def one(conn: sqlite3.Connection, now: int) -> None:
            job = Held(conn, job_id, self.tenant_id)
            if job.status not in (Status.RETRY, Status.PENDING):
                raise not_retryable(job_id, job.status)
            if conn.execute(SQL["make_due"], {"id": job.id, "now": now}).rowcount == 1:
                job.write_event(conn, now, "made_due", note)
                conn.execute(SQL["make_due_job"], {"id": job.id, "now": now})

        await self._write(one, WORK | NEWS)
