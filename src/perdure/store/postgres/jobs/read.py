"""Jobs as people and programs look at them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from perdure.model.events import Event
from perdure.model.jobs import Job, JobFilter, Page, RunRecord
from perdure.model.states import Status
from perdure.store.errors import ambiguous_id, id_suffix, job_not_found, parse_cursor
from perdure.store.postgres.engine.codec import SPELLING
from perdure.store.postgres.engine.hot_writer import Base
from perdure.store.postgres.engine.transactions import Tx
from perdure.store.rows import Row, event_of, job_of, run_of

SOURCES: dict[Status, tuple[str, ...]] = {
    Status.PENDING: ("queue",),
    Status.RETRY: ("queue",),
    Status.RUNNING: ("claims",),
    Status.WAITING: ("claims",),
    Status.PARKED: ("waits", "due"),  # without any wait it is due at once
    Status.WAITING_FOR_APPROVAL: ("waits", "due"),
    Status.FAILED: ("failures",),
    Status.DEADLETTER: ("failures",),
}
"""The tables that name every job of a state; a state that is missing here is found in `jobs` alone."""


def job_of_row(row: Row) -> Job:
    """A row of `get_job`."""
    return job_of({**row, "cursor": _key_of(row["last_step"])}, SPELLING)


class Jobs(Base):
    """See `protocol.JobStore`."""

    async def get_job(self, job_id: UUID) -> Job:
        """See `protocol.JobStore.get_job`."""
        row = await self._db.row("get_job", job_id, self.tenant)
        if row is None:
            raise job_not_found(job_id)
        return job_of_row(row)

    async def find_job(self, text: str) -> UUID:
        """See `protocol.JobStore.find_job`."""
        suffix = id_suffix(text)
        if isinstance(suffix, UUID):
            return (await self.get_job(suffix)).id
        rows = await self._db.rows("find_job", suffix, self.tenant)
        if not rows:
            raise job_not_found(text)
        if len(rows) > 1:
            raise ambiguous_id(text)
        id: UUID = rows[0]["id"]
        return id

    async def list_jobs(self, filter: JobFilter, *, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        """See `protocol.JobStore.list_jobs`."""
        before = parse_cursor(cursor)
        arguments = (self.tenant, before, *_conditions(filter), limit + 1, _sources(filter))

        async def work(tx: Tx) -> list[Row]:
            await tx.rows("by_index")
            return await tx.rows("list_jobs", *arguments)

        rows = await self._db.transact(work)
        items = tuple(job_of(row, SPELLING) for row in rows[:limit])
        return Page(items, str(items[-1].id) if items and len(rows) > limit else None)

    async def count_jobs(self, filter: JobFilter, *, by: Literal["status", "kind", "queue"]) -> dict[str, int]:
        """See `protocol.JobStore.count_jobs`."""
        arguments = (self.tenant, by, *_conditions(filter))
        if small := _small_tables(filter):
            rows = await self._db.rows("count_some_jobs", *arguments, small)
        else:
            rows = await self._db.rows("count_jobs", *arguments)
        return {row["grp"]: row["n"] for row in rows}

    async def list_runs(self, job_id: UUID) -> list[RunRecord]:
        """See `protocol.JobStore.list_runs`."""
        return [run_of(row, SPELLING) for row in await self._db.rows("list_runs", job_id, self.tenant)]

    async def list_events(
        self, job_id: UUID, *, after: int = 0, limit: int = 1000, types: Sequence[str] | None = None
    ) -> list[Event]:
        """See `protocol.JobStore.list_events`."""
        wanted = None if types is None else list(types)
        return [
            event_of(row, SPELLING)
            for row in await self._db.rows("list_events", job_id, after, limit, wanted, self.tenant)
        ]


def _conditions(filter: JobFilter) -> tuple[Any, ...]:
    """Statuses, kinds, queues, since, until, search, key; null = any."""
    return (
        [status.value for status in filter.statuses] or None,
        list(filter.kinds) or None,
        list(filter.queues) or None,
        filter.since,
        filter.until,
        filter.search,
        filter.idempotency_key,
    )


def _small_tables(filter: JobFilter) -> list[str]:
    """Those that name all jobs of the wanted states; none where some are found in history alone."""
    sources = {source for status in filter.statuses for source in SOURCES.get(status, ("all",))}
    return [] if "all" in sources else sorted(sources)


def _sources(filter: JobFilter) -> list[str]:
    """Where a list reads: history only where it is asked for, and of that no more than what is of the wanted kind."""
    return _small_tables(filter) or (["kind"] if len(filter.kinds) == 1 else ["all"])


def _key_of(payload: str | None) -> str | None:
    """The step of a `node_finished` payload. Not taken apart in SQL: PostgreSQL cannot where it holds a \\u0000."""
    key: str | None = None if payload is None else json.loads(payload).get("key")
    return key
