"""What clients do with jobs of one tenant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal
from uuid import UUID

from perdure.model.events import Event, NewEvent
from perdure.model.explanation import Situation
from perdure.model.job_changes import NO_EVENTS, Changed, JobChange
from perdure.model.jobs import ALL_QUEUES, Enqueued, Head, Job, JobFilter, NewJob, Page, RunRecord
from perdure.model.states import Status
from perdure.model.waits.code import PREFIX
from perdure.store.errors import ambiguous_id, id_suffix, job_not_found
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.engine import Engine
from perdure.store.postgres.jobs import changes, control, read
from perdure.store.postgres.jobs.enqueue import EnqueueItem
from perdure.store.postgres.jobs.enqueue_many import enqueue_batch, enqueue_recorded, enqueue_together, recorded_in
from perdure.store.postgres.jobs.explain import read_situation
from perdure.store.rows import event_of, run_of
from perdure.store.tx_enqueue.caller_connection import PreparedEnqueue


class PostgresJobs:
    """See `protocol.JobStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._database = engine.database
        self._tenant_id = tenant_id

    # -- enqueue -------------------------------------------------------------------------------------------------------

    async def enqueue(self, job: NewJob) -> Enqueued:
        """See `protocol.JobStore.enqueue`."""
        return await self._engine.enqueues.submit(EnqueueItem(self._tenant_id, job))

    async def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """See `protocol.JobStore.enqueue_many`."""
        enqueued = await enqueue_together(self._database, self._tenant_id, jobs)
        if enqueued:
            self._engine.notifier.notify(self._tenant_id, "work", "news")
        return enqueued

    async def enqueue_recorded(
        self, job: NewJob, events: Sequence[NewEvent], *, checkpoint: str | None = None
    ) -> Enqueued:
        """See `protocol.JobStore.enqueue_recorded`."""
        enqueued = await enqueue_recorded(self._database, self._tenant_id, job, events, checkpoint)
        self._engine.notifier.notify(self._tenant_id, "work", "news")
        return enqueued

    async def enqueue_many_recorded(self, jobs: Sequence[tuple[NewJob, Sequence[NewEvent]]]) -> list[Enqueued]:
        """See `protocol.JobStore.enqueue_many_recorded`."""

        async def work(tx: Transaction) -> list[Enqueued]:
            return [await recorded_in(tx, self._tenant_id, job, events) for job, events in jobs]

        enqueued = await self._database.transact(work)
        self._engine.notifier.notify(self._tenant_id, "work", "news")
        return enqueued

    async def enqueue_batch(self, callback: NewJob, jobs: Sequence[NewJob]) -> Enqueued:
        """See `protocol.JobStore.enqueue_batch`."""
        enqueued = await enqueue_batch(self._database, self._tenant_id, callback, jobs)
        self._engine.notifier.notify(self._tenant_id, "work", "news")
        return enqueued

    async def prepare_enqueue(
        self, tx: object, jobs: Sequence[NewJob], first: Mapping[UUID, Sequence[NewEvent]] = NO_EVENTS
    ) -> PreparedEnqueue:
        """See `protocol.JobStore.prepare_enqueue`."""
        return await self._engine.tx_enqueue.prepare(tx, jobs, first, self._tenant_id)

    # -- read ----------------------------------------------------------------------------------------------------------

    async def get_job(self, job_id: UUID) -> Job:
        """See `protocol.JobStore.get_job`."""
        row = await self._database.row("get_job", job_id=job_id, tenant_id=self._tenant_id)
        if row is None:
            raise job_not_found(job_id)
        return read.job_of_row(row)

    async def heads(self, job_ids: Sequence[UUID]) -> dict[UUID, Head]:
        """See `protocol.JobStore.heads`."""
        rows = await self._database.rows("heads", ids=list(job_ids), tenant_id=self._tenant_id)
        return {row["id"]: Head(row["version"], Status(row["status"])) for row in rows}

    async def newest_rerun(self, job_id: UUID) -> UUID:
        """See `protocol.JobStore.newest_rerun`."""
        row = await self._database.row("newest_rerun", job_id=job_id, tenant_id=self._tenant_id)
        assert row is not None
        id: UUID = row["id"]
        return id

    async def find_job(self, text: str) -> UUID:
        """See `protocol.JobStore.find_job`."""
        suffix = id_suffix(text)
        if isinstance(suffix, UUID):
            return (await self.get_job(suffix)).id
        rows = await self._database.rows("find_job", suffix=suffix, tenant_id=self._tenant_id)
        if not rows:
            raise job_not_found(text)
        if len(rows) > 1:
            raise ambiguous_id(text)
        id: UUID = rows[0]["id"]
        return id

    async def list_jobs(self, filter: JobFilter, *, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        """See `protocol.JobStore.list_jobs`."""
        return await read.list_jobs(self._database, self._tenant_id, filter, limit=limit, cursor=cursor)

    async def count_jobs(self, filter: JobFilter, *, by: Literal["status", "kind", "queue"]) -> dict[str, int]:
        """See `protocol.JobStore.count_jobs`."""
        return await read.count_jobs(self._database, self._tenant_id, filter, by=by)

    async def list_runs(self, job_id: UUID) -> list[RunRecord]:
        """See `protocol.JobStore.list_runs`."""
        rows = await self._database.rows("list_runs", job_id=job_id, tenant_id=self._tenant_id)
        return [run_of(row, CODEC) for row in rows]

    async def list_events(
        self, job_id: UUID, *, after: int = 0, limit: int = 1000, types: Sequence[str] | None = None
    ) -> list[Event]:
        """See `protocol.JobStore.list_events`."""
        rows = await self._database.rows(
            "list_events",
            job_id=job_id,
            after=after,
            limit=limit,
            types=None if types is None else list(types),
            tenant_id=self._tenant_id,
        )
        return [event_of(row, CODEC) for row in rows]

    async def situation(self, job_id: UUID) -> Situation:
        """See `protocol.JobStore.situation`."""
        return await self._database.transact(
            lambda tx: read_situation(tx, self._tenant_id, job_id), isolation="repeatable_read", readonly=True
        )

    # -- control -------------------------------------------------------------------------------------------------------

    async def append(self, job_id: UUID, expected_version: int, event: NewEvent) -> int:
        """See `protocol.JobStore.append`."""
        version = await control.append(self._database, self._tenant_id, job_id, expected_version, event)
        self._engine.notifier.notify(self._tenant_id, "news")
        return version

    async def cancel(self, job_id: UUID, *, note: str, force: bool = False) -> Status:
        """See `protocol.JobStore.cancel`."""
        status = await control.cancel(self._database, self._tenant_id, job_id, note=note, force=force)
        self._engine.notifier.notify(self._tenant_id, "work", "news")
        return status

    async def waiting_for_code(
        self, *, version: str, queues: Sequence[str], kinds: Sequence[str], limit: int = 100
    ) -> list[UUID]:
        """See `protocol.JobStore.waiting_for_code`."""
        rows = await self._database.rows(
            "waiting_for_code",
            key=PREFIX + version,
            tenant_id=self._tenant_id,
            queues=None if ALL_QUEUES in queues else list(queues),
            kinds=list(kinds),
            limit=limit,
        )
        return [row["job_id"] for row in rows]

    async def retry_now(self, job_id: UUID, *, note: str, hint: bool = True) -> None:
        """See `protocol.JobStore.retry_now`."""
        await control.retry_now(self._database, self._tenant_id, job_id, note=note)
        self._engine.notifier.notify(self._tenant_id, *(("work", "news") if hint else ("news",)))

    async def change_jobs(self, job_ids: Sequence[UUID], change: JobChange, *, note: str) -> list[Changed]:
        """See `protocol.JobStore.change_jobs`."""
        done = await changes.change_jobs(self._database, self._tenant_id, job_ids, change, note=note)
        self._engine.notifier.notify(self._tenant_id, "work", "news")
        return done

    async def rerun_jobs(
        self, jobs: Sequence[NewJob], first: Mapping[UUID, Sequence[NewEvent]] = NO_EVENTS
    ) -> list[bool]:
        """See `protocol.JobStore.rerun_jobs`."""
        stored = await changes.rerun_jobs(self._database, self._tenant_id, jobs, first)
        self._engine.notifier.notify(self._tenant_id, "work", "news")
        return stored

    async def rerun_of(self, job_ids: Sequence[UUID]) -> set[UUID]:
        """See `protocol.JobStore.rerun_of`."""
        return await changes.rerun_of(self._database, job_ids)
