"""Enqueueing: one job at a time sharing commits, or many in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import asyncpg

from perdure.model.errors import PerdureError
from perdure.model.events import NewEvent
from perdure.model.ids import same_json
from perdure.model.jobs import Enqueued, NewJob, lane_of
from perdure.store.errors import idempotency_conflict
from perdure.store.group_commit.batcher import Batcher
from perdure.store.group_commit.limits import chunks, event_chunks, text_of_job
from perdure.store.postgres.engine.driver_errors import Restart
from perdure.store.postgres.engine.hot_writer import Base, HotWriter, alike
from perdure.store.postgres.engine.transactions import Database, Tx

HOT_STATEMENTS = ("enqueue_many", "enqueue_one", "add_many", "add_one", "find_enqueued")


def adding(statements: Mapping[str, str]) -> dict[str, str]:
    """`add_many` and `add_one`: enqueue what is not there yet, and say what was not. A job whose id does not come back met its
    idempotency key, or itself after a lost commit. The enqueues proper raise then, and take an eighth less time."""
    return {
        add: f"{statements[enqueue]}\non conflict do nothing returning id"
        for enqueue, add in (("enqueue_many", "add_many"), ("enqueue_one", "add_one"))
    }


def insert_arguments(jobs: Sequence[NewJob], tenant: str) -> tuple[Any, ...]:
    """The arguments of `enqueue_many`: one array per column, of one element where all are the same, and of none where all are
    null: the driver looks at each element of each array, which is most of what a job costs here."""
    (ids, kinds, payloads, queues, goals, priorities, retries, delays, run_ats, deadlines, keys, origins, origin_kinds,
     notes) = zip(*jobs, strict=True)  # fmt: skip
    keys = _some(keys)
    hashes = [job.payload_hash for job in jobs] if keys else ()
    lanes = [lane_of(tenant, queue) for queue in alike(queues)]
    return (
        ids, alike(kinds), alike(queues), lanes, _some(goals), alike(payloads), hashes, alike(priorities),
        alike(retries), _some(run_ats), alike(delays), _some(deadlines), keys, _some(origins), _some(origin_kinds),
        alike(notes), tenant,
    )  # fmt: skip


def _some(column: tuple[Any, ...]) -> tuple[Any, ...]:
    """A column that mostly is."""
    return () if column.count(None) == len(column) else column


def one_arguments(job: NewJob, tenant: str) -> tuple[Any, ...]:
    """The arguments of `enqueue_one`."""
    return (job.id, job.kind, job.queue, lane_of(tenant, job.queue), job.goal, job.payload, job.payload_hash, job.priority,
            job.max_retries, job.run_at, job.delay, job.deadline, job.idempotency_key, job.origin_id, job.origin_kind, job.note,
            tenant)  # fmt: skip


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
    lost, or the one that had its key first. `other` is that one's payload, unless the hashes say it is the same."""
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
        if not _keyed(items):
            with suppress(asyncpg.UniqueViolationError):
                await self._hot.fetch(*self._insert("enqueue", items))
                self._bell.ring("work", "news")
                return _created(items)
        results: dict[UUID, Enqueued | Exception] = {}
        missing = items
        while missing:
            rows = await self._hot.fetch(*self._insert("add", missing))
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

    def _insert(self, how: str, jobs: Sequence[NewJob]) -> tuple[Any, ...]:
        if len(jobs) == 1:
            return (f"{how}_one", *one_arguments(jobs[0], self._db.tenant))
        return (f"{how}_many", *insert_arguments(jobs, self._db.tenant))

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
        """See `Writer`. Two writes with one key at once would wait for each other."""
        return item.id.int if item.idempotency_key is None else (item.kind, item.idempotency_key)

    def size(self, item: NewJob) -> int:
        """See `Writer`."""
        return text_of_job(item)


class _Unreadable(Exception):
    """The caller's jobs cannot be read (a validator raised): whatever it is, it is no trouble of the database's, to be tried
    again."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


async def enqueue_together(db: Database, jobs: Iterable[NewJob]) -> list[Enqueued]:
    """All of them in one transaction, or none. While the database works on one portion, the next one is made ready."""
    source, read = chunks(jobs), list[Sequence[NewJob]]()

    def portions() -> Iterator[Sequence[NewJob]]:
        yield from tuple(read)  # by a former try
        try:
            for portion in source:
                read.append(portion)
                yield portion
        except Exception as error:
            raise _Unreadable(error) from error

    known = False  # some are there already, although they have no keys

    async def insert(tx: Tx, portion: Sequence[NewJob], arguments: tuple[Any, ...]) -> set[UUID] | None:
        """Which ones were inserted; None for all of them."""
        nonlocal known
        if tx.again or known or _keyed(portion):
            return {row["id"] for row in await tx.rows("add_many", *arguments)}
        try:
            await tx.rows("enqueue_many", *arguments)
        except asyncpg.UniqueViolationError as error:
            known = True
            raise Restart("a job is there already") from error
        return None

    async def work(tx: Tx) -> list[Enqueued]:
        acknowledged: list[Enqueued] = []
        sent: asyncio.Task[set[UUID] | None] | None = None
        try:
            before: Sequence[NewJob] = ()
            for portion in portions():
                arguments = insert_arguments(portion, db.tenant)
                if sent is not None and (inserted := await sent) is not None:
                    acknowledged += await _acknowledged(tx, before, inserted)
                    before = ()
                sent = asyncio.create_task(insert(tx, portion, arguments))
                await asyncio.sleep(0)  # off it goes
                acknowledged += _created(before)
                before = portion
            if sent is not None:
                inserted = await sent
                acknowledged += _created(before) if inserted is None else await _acknowledged(tx, before, inserted)
        finally:
            if sent is not None:
                if not sent.done():  # the connection must be free for the rollback
                    sent.cancel()
                    await asyncio.wait([sent])
                if not sent.cancelled():
                    sent.exception()  # seen: where the caller's jobs could not be read, that is what he is told
        return acknowledged

    try:
        return await db.transact(work)
    except _Unreadable as unreadable:
        raise unreadable.error from None


def _keyed(jobs: Sequence[NewJob]) -> bool:
    return any(job.idempotency_key is not None for job in jobs)


def _created(jobs: Sequence[NewJob]) -> list[Enqueued]:
    return [Enqueued(job.id, created=True) for job in jobs]


async def _acknowledged(tx: Tx, jobs: Sequence[NewJob], inserted: set[UUID]) -> list[Enqueued]:
    """What became of a portion, of which these were inserted. Raises IdempotencyConflict."""
    results = {id: Enqueued(id, created=True) for id in inserted}
    missing = [job for job in jobs if job.id not in results]
    for row in await tx.rows("find_enqueued", *find_arguments(missing, tx.tenant)) if missing else ():
        job = missing[row["n"] - 1]
        result = acknowledge(job, row["id"], row["other"])
        if isinstance(result, PerdureError):
            raise result
        results[job.id] = result
    if any(job.id not in results for job in missing):
        raise Restart("the job that has one of the keys is gone")
    return [results[job.id] for job in jobs]


async def enqueue_recorded(db: Database, job: NewJob, events: Sequence[NewEvent], checkpoint: str | None) -> Enqueued:
    """A job and what its log begins with, in one transaction."""

    async def work(tx: Tx) -> Enqueued:
        if not await tx.rows("add_one", *one_arguments(job, db.tenant)):
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

    async def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """See `protocol.JobStore.enqueue_many`."""
        acknowledged = await enqueue_together(self._db, jobs)
        if acknowledged:
            self._bell.ring("work", "news")
        return acknowledged

    async def enqueue_recorded(
        self, job: NewJob, events: Sequence[NewEvent], *, checkpoint: str | None = None
    ) -> Enqueued:
        """See `protocol.JobStore.enqueue_recorded`."""
        stored = await enqueue_recorded(self._db, job, events, checkpoint)
        self._bell.ring("work", "news")
        return stored
