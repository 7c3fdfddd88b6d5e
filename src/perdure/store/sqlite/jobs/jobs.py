"""What clients do with jobs of one tenant."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal
from uuid import UUID

from perdure.model.events import Event, NewEvent
from perdure.model.explanation import Situation
from perdure.model.job_changes import NO_EVENTS, Changed, JobChange
from perdure.model.jobs import ALL_QUEUES, Enqueued, Head, Job, JobFilter, NewJob, Page, RunRecord
from perdure.model.states import Status
from perdure.model.waits.code import PREFIX
from perdure.store.errors import ambiguous_id, id_suffix, job_not_found, parse_cursor
from perdure.store.group_commit.limits import text_of_job
from perdure.store.rows import event_of, job_of, run_of
from perdure.store.sqlite.engine.batch import NEWS, WORK
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.jobs import changes, control, read
from perdure.store.sqlite.jobs.enqueue import EnqueueItem, enqueue_all, enqueue_batch, enqueue_each, enqueue_recorded
from perdure.store.sqlite.jobs.explain import read_situation
from perdure.store.sqlite.tx_enqueue.tx_enqueue import connection_steps
from perdure.store.tx_enqueue.caller_connection import PreparedEnqueue


class SqliteJobs:
    """See `protocol.JobStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    # -- enqueue -------------------------------------------------------------------------------------------------------

    async def enqueue(self, job: NewJob) -> Enqueued:
        """See `protocol.JobStore.enqueue`."""
        item = EnqueueItem(self._tenant_id, job)
        return await self._engine.batch(enqueue_each, item, WORK | NEWS, text_of_job(job))

    async def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """See `protocol.JobStore.enqueue_many`."""
        some = list(jobs)
        if not some:
            return []
        return await self._engine.write(
            lambda conn, now: enqueue_all(conn, now, self._tenant_id, some),
            WORK | NEWS,
        )

    async def enqueue_recorded(
        self, job: NewJob, events: Sequence[NewEvent], *, checkpoint: str | None = None
    ) -> Enqueued:
        """See `protocol.JobStore.enqueue_recorded`."""
        return await self._engine.write(
            lambda conn, now: enqueue_recorded(conn, now, self._tenant_id, job, events, checkpoint),
            WORK | NEWS,
        )

    async def enqueue_many_recorded(self, jobs: Sequence[tuple[NewJob, Sequence[NewEvent]]]) -> list[Enqueued]:
        """See `protocol.JobStore.enqueue_many_recorded`."""
        return await self._engine.write(
            lambda conn, now: [enqueue_recorded(conn, now, self._tenant_id, job, events, None) for job, events in jobs],
            WORK | NEWS,
        )

    async def enqueue_batch(self, callback: NewJob, jobs: Sequence[NewJob]) -> Enqueued:
        """See `protocol.JobStore.enqueue_batch`."""
        return await self._engine.write(
            lambda conn, now: enqueue_batch(conn, now, self._tenant_id, callback, jobs),
            WORK | NEWS,
        )

    async def prepare_enqueue(
        self, tx: object, jobs: Sequence[NewJob], first: Mapping[UUID, Sequence[NewEvent]] = NO_EVENTS
    ) -> PreparedEnqueue:
        """See `protocol.JobStore.prepare_enqueue`."""
        return PreparedEnqueue(
            tx, lambda connection: connection_steps(connection, jobs, first, self._tenant_id, self._engine.path)
        )

    # -- read ----------------------------------------------------------------------------------------------------------

    async def get_job(self, job_id: UUID) -> Job:
        """See `protocol.JobStore.get_job`."""
        row = await self._engine.row("get_job", job_id=str(job_id), tenant_id=self._tenant_id)
        if row is None:
            raise job_not_found(job_id)
        return job_of(row, CODEC)

    async def heads(self, job_ids: Sequence[UUID]) -> dict[UUID, Head]:
        """See `protocol.JobStore.heads`."""
        ids = json.dumps([str(id) for id in job_ids])
        rows = await self._engine.rows("heads", ids=ids, tenant_id=self._tenant_id)
        return {UUID(row["id"]): Head(row["version"], Status(row["status"])) for row in rows}

    async def newest_rerun(self, job_id: UUID) -> UUID:
        """See `protocol.JobStore.newest_rerun`."""
        [row] = await self._engine.rows("newest_rerun", job_id=str(job_id), tenant_id=self._tenant_id)
        return UUID(row["id"])

    async def find_job(self, text: str) -> UUID:
        """See `protocol.JobStore.find_job`."""
        suffix = id_suffix(text)
        if isinstance(suffix, UUID):
            return (await self.get_job(suffix)).id
        rows = await self._engine.rows("find_job", suffix=suffix, tenant_id=self._tenant_id)
        if not rows:
            raise job_not_found(text)
        if len(rows) > 1:
            raise ambiguous_id(text)
        return UUID(rows[0]["id"])

    async def list_jobs(self, filter: JobFilter, *, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        """See `protocol.JobStore.list_jobs`."""
        before = parse_cursor(cursor)
        rows = await self._engine.read(
            lambda conn: read.list_jobs(conn, filter, self._tenant_id, before, limit + 1),
        )
        jobs = tuple(job_of(row, CODEC) for row in rows[:limit])
        return Page(jobs, str(jobs[-1].id) if jobs and len(rows) > limit else None)

    async def count_jobs(self, filter: JobFilter, *, by: Literal["status", "kind", "queue"]) -> dict[str, int]:
        """See `protocol.JobStore.count_jobs`."""
        source = read.source_of(filter)
        values = read.filter_values(filter, self._tenant_id) | {"by": by}
        if by == "status" and filter.only_queued:
            rows = await self._engine.rows("count_queued", tenant_id=self._tenant_id, statuses=values["statuses"])
        elif source is None:
            rows = await self._engine.rows("count_jobs", **values)
        else:
            rows = await self._engine.rows("count_some_jobs", **values, source=source)
        return {row["grp"]: row["n"] for row in rows}

    async def list_runs(self, job_id: UUID) -> list[RunRecord]:
        """See `protocol.JobStore.list_runs`."""
        rows = await self._engine.rows("list_runs", job_id=str(job_id), tenant_id=self._tenant_id)
        return [run_of(row, CODEC) for row in rows]

    async def list_events(
        self, job_id: UUID, *, after: int = 0, limit: int = 1000, types: Sequence[str] | None = None
    ) -> list[Event]:
        """See `protocol.JobStore.list_events`."""
        values = read.event_values(job_id, self._tenant_id, after=after, limit=limit, types=types)
        return [event_of(row, CODEC) for row in await self._engine.rows("list_events", **values)]

    async def situation(self, job_id: UUID) -> Situation:
        """See `protocol.JobStore.situation`."""
        return await self._engine.read(lambda conn: read_situation(conn, self._tenant_id, job_id))

    # -- control -------------------------------------------------------------------------------------------------------

    async def append(self, job_id: UUID, expected_version: int, event: NewEvent) -> int:
        """See `protocol.JobStore.append`."""
        return await self._engine.write(
            lambda conn, now: control.append(conn, now, self._tenant_id, job_id, expected_version, event),
            NEWS,
        )

    async def cancel(self, job_id: UUID, *, note: str, force: bool = False) -> Status:
        """See `protocol.JobStore.cancel`."""
        return await self._engine.write(
            lambda conn, now: control.cancel(conn, now, self._tenant_id, job_id, note, force),
            WORK | NEWS,
        )

    async def waiting_for_code(
        self, *, version: str, queues: Sequence[str], kinds: Sequence[str], limit: int = 100
    ) -> list[UUID]:
        """See `protocol.JobStore.waiting_for_code`."""
        rows = await self._engine.rows(
            "waiting_for_code",
            key=PREFIX + version,
            tenant_id=self._tenant_id,
            queues=None if ALL_QUEUES in queues else json.dumps(list(queues)),
            kinds=json.dumps(list(kinds)),
            limit=limit,
        )
        return [CODEC.uuid(row["job_id"]) for row in rows]

    async def retry_now(self, job_id: UUID, *, note: str, hint: bool = True) -> None:
        """See `protocol.JobStore.retry_now`."""
        await self._engine.write(
            lambda conn, now: control.retry_now(conn, now, self._tenant_id, job_id, note),
            WORK | NEWS if hint else NEWS,
        )

    async def change_jobs(self, job_ids: Sequence[UUID], change: JobChange, *, note: str) -> list[Changed]:
        """See `protocol.JobStore.change_jobs`."""
        return await self._engine.write(
            lambda conn, now: changes.change_jobs(conn, now, self._tenant_id, job_ids, change, note), WORK | NEWS
        )

    async def rerun_jobs(
        self, jobs: Sequence[NewJob], first: Mapping[UUID, Sequence[NewEvent]] = NO_EVENTS
    ) -> list[bool]:
        """See `protocol.JobStore.rerun_jobs`."""
        return await self._engine.write(
            lambda conn, now: changes.rerun_jobs(conn, now, self._tenant_id, jobs, first), WORK | NEWS
        )

    async def rerun_of(self, job_ids: Sequence[UUID]) -> set[UUID]:
        """See `protocol.JobStore.rerun_of`."""
        return await self._engine.read(lambda conn: changes.rerun_of(conn, job_ids))
