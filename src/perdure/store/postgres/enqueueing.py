"""Enqueueing: one job at a time sharing commits, or many in one transaction."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from perdure.model.errors import PerdureError
from perdure.model.events import NewEvent
from perdure.model.ids import same_json
from perdure.model.jobs import Enqueued, NewJob, lane_of
from perdure.store.batcher import Batcher
from perdure.store.postgres.base import Base, HotWriter
from perdure.store.postgres.transactions import Database, Tx
from perdure.store.postgres.troubles import Restart
from perdure.store.refusals import idempotency_conflict
from perdure.store.sizes import chunks, event_chunks, text_of_job

HOT_STATEMENTS = ("enqueue_many", "find_enqueued")


def insert_arguments(jobs: Sequence[NewJob], tenant: str) -> tuple[Any, ...]:
    """The arguments of `enqueue_many`: one array per column."""
    ids: list[UUID] = []
    kinds: list[str] = []
    queues: list[str] = []
    lanes: list[str] = []
    goals: list[str | None] = []
    payloads: list[str] = []
    hashes: list[str] = []
    priorities: list[int] = []
    retries: list[int] = []
    run_ats: list[datetime | None] = []
    delays: list[float] = []
    deadlines: list[datetime | None] = []
    keys: list[str | None] = []
    origins: list[UUID | None] = []
    origin_kinds: list[str | None] = []
    notes: list[str] = []
    for job in jobs:
        ids.append(job.id)
        kinds.append(job.kind)
        queues.append(job.queue)
        lanes.append(lane_of(tenant, job.queue))
        goals.append(job.goal)
        payloads.append(job.payload)
        hashes.append(job.payload_hash)
        priorities.append(job.priority)
        retries.append(job.max_retries)
        run_ats.append(job.run_at)
        delays.append(job.delay)
        deadlines.append(job.deadline)
        keys.append(job.idempotency_key)
        origins.append(job.origin_id)
        origin_kinds.append(job.origin_kind)
        notes.append(job.note)
    return (ids, kinds, queues, lanes, goals, payloads, hashes, priorities, retries, run_ats, delays, deadlines, keys, origins,
            origin_kinds, notes, tenant)  # fmt: skip


def find_arguments(jobs: Sequence[NewJob], tenant: str) -> tuple[Any, ...]:
    """The arguments of `find_enqueued`."""
    return (
        [j.id for j in jobs],
        [j.kind for j in jobs],
        [j.idempotency_key for j in jobs],
        tenant,
        [j.payload_hash for j in jobs],
    )


def acknowledge(job: NewJob, id: UUID, other: str | None) -> Enqueued | PerdureError:
    """What a job that did not come back from its insert turns out to be: this very one, stored by a call whose answer was
    lost, or the one that had its key first. `other` is that one's payload, where it is not the same text."""
    if id == job.id:
        return Enqueued(job.id, created=True)
    if other is not None and not same_json(other, job.payload):
        return idempotency_conflict(job, id)
    return Enqueued(id, created=False)


class EnqueueWriter(HotWriter[NewJob, Enqueued]):
    """One INSERT for all jobs that arrived meanwhile."""

    async def write(self, items: Sequence[NewJob]) -> Sequence[Enqueued | Exception]:
        """See `Writer`."""
        tenant = self._db.tenant
        results: dict[UUID, Enqueued | Exception] = {}
        missing = items
        while missing:
            rows = await self._hot.fetch("enqueue_many", *insert_arguments(missing, tenant))
            results.update((row["id"], Enqueued(row["id"], created=True)) for row in rows)
            if rows:
                self._bell.ring("work", "news")
            missing = [job for job in missing if job.id not in results]
            if missing:
                for row in await self._hot.fetch("find_enqueued", *find_arguments(missing, tenant)):
                    job = missing[row["n"] - 1]
                    results[job.id] = acknowledge(job, row["id"], row["other"])
                # One that met nothing after all (what it met was pruned between the two statements) is inserted again.
                missing = [job for job in missing if job.id not in results]
        return [results[job.id] for job in items]

    async def look(self, items: Sequence[NewJob]) -> Sequence[Enqueued | Exception | None]:
        """See `Writer`."""
        await self._hot.restore()
        ids, kinds, _, tenant, hashes = find_arguments(items, self._db.tenant)
        rows = await self._hot.fetch("find_enqueued", ids, kinds, [None] * len(items), tenant, hashes)
        stored = {row["id"] for row in rows}
        return [Enqueued(job.id, created=True) if job.id in stored else None for job in items]

    async def write_aside(self, item: NewJob) -> Enqueued:
        """See `Writer`."""
        async with self._aside:
            acknowledged = await enqueue_together(self._db, [item])
        self._bell.ring("work", "news")
        return acknowledged[0]

    def subject(self, item: NewJob) -> Hashable:
        """See `Writer`."""
        return item.id

    def size(self, item: NewJob) -> int:
        """See `Writer`."""
        return text_of_job(item)


async def enqueue_together(db: Database, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """All of them in one transaction, or none."""

    async def work(tx: Tx) -> list[Enqueued]:
        acknowledged: list[Enqueued] = []
        for chunk in chunks(jobs):
            created = {row["id"] for row in await tx.rows("enqueue_many", *insert_arguments(chunk, db.tenant))}
            results = {id: Enqueued(id, created=True) for id in created}
            missing = [job for job in chunk if job.id not in created]
            for row in await tx.rows("find_enqueued", *find_arguments(missing, db.tenant)) if missing else ():
                job = missing[row["n"] - 1]
                result = acknowledge(job, row["id"], row["other"])
                if isinstance(result, PerdureError):
                    raise result
                results[job.id] = result
            if any(job.id not in results for job in chunk):
                raise Restart("the job that has one of the keys is gone")
            acknowledged += [results[job.id] for job in chunk]
        return acknowledged

    return await db.transact(work)


async def enqueue_recorded(db: Database, job: NewJob, events: Sequence[NewEvent], checkpoint: str | None) -> Enqueued:
    """A job and what its log begins with, in one transaction."""

    async def work(tx: Tx) -> Enqueued:
        if not await tx.rows("enqueue_many", *insert_arguments([job], db.tenant)):
            found = await tx.row("find_enqueued", *find_arguments([job], db.tenant))
            if found is None:
                raise Restart("the job that has its key is gone")
            result = acknowledge(job, found["id"], found["other"])
            if isinstance(result, PerdureError):
                raise result
            return result
        version = 1
        for chunk in event_chunks(events):
            versions = range(version + 1, version + 1 + len(chunk))
            many, ids, types = len(chunk), [e.event_id for e in chunk], [e.type for e in chunk]
            payloads = [e.payload for e in chunk]
            await tx.rows("insert_events", [job.id] * many, list(versions), [0] * many, ids, types, payloads)
            version += many
        if events:
            await tx.rows("recorded_head", job.id, version)
        if checkpoint is not None:
            await tx.rows("patch_state", [job.id], [checkpoint], [None], [None], [0], [0.0])
        return Enqueued(job.id, created=True)

    return await db.transact(work)


class Enqueueing(Base):
    """See `protocol.JobStore`."""

    _enqueues: Batcher[NewJob, Enqueued]

    async def enqueue(self, job: NewJob) -> Enqueued:
        """See `protocol.JobStore.enqueue`."""
        return await self._enqueues.submit(job)

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """See `protocol.JobStore.enqueue_many`."""
        if not jobs:
            return []
        acknowledged = await enqueue_together(self._db, jobs)
        self._bell.ring("work", "news")
        return acknowledged

    async def enqueue_recorded(
        self, job: NewJob, events: Sequence[NewEvent], *, checkpoint: str | None = None
    ) -> Enqueued:
        """See `protocol.JobStore.enqueue_recorded`."""
        stored = await enqueue_recorded(self._db, job, events, checkpoint)
        self._bell.ring("work", "news")
        return stored
