"""Enqueueing many jobs in one transaction, or a job together with the beginning of its log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from perdure.model.batches import BATCH_KEY, subject_of
from perdure.model.cost import ZERO
from perdure.model.errors import PerdureError
from perdure.model.events import NewEvent
from perdure.model.jobs import Enqueued, NewJob
from perdure.store.child_rows import batch_opened
from perdure.store.group_commit.limits import chunks, event_chunks
from perdure.store.postgres.engine.database import Database, Transaction
from perdure.store.postgres.engine.driver_errors import Restart
from perdure.store.postgres.jobs.enqueue_values import (
    apart,
    created,
    found,
    jobs_as_json,
    keyed,
    lookup,
    many_jobs,
    one_job,
)


class _Unreadable(Exception):
    """The caller's jobs cannot be read (a validator raised). Whatever the error is, it is not the database's and must not be
    retried as if it were."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


async def enqueue_together(database: Database, tenant_id: str, jobs: Iterable[NewJob]) -> list[Enqueued]:
    """All of them in one transaction, or none. While the database works on one portion, the next one is made ready."""
    source, read = chunks(jobs), list[Sequence[NewJob]]()

    def portions() -> Iterator[Sequence[NewJob]]:
        yield from tuple(read)  # by a transaction that was restarted
        try:
            for portion in source:
                read.append(portion)
                yield portion
        except Exception as error:
            raise _Unreadable(error) from error

    known = False  # some are there already, although they have no keys

    async def insert(tx: Transaction, fast: bool, parts: Sequence[dict[str, Any]]) -> set[UUID] | None:
        """Which ones were inserted; None for all of them."""
        nonlocal known
        if not fast:
            return {UUID(row["id"]) for values in parts for row in await tx.rows("enqueue_joined", **values)}
        try:
            await tx.rows("enqueue_many", **parts[0])
        except asyncpg.UniqueViolationError as error:
            known = True
            raise Restart("a job is there already") from error
        return None

    async def work(tx: Transaction) -> list[Enqueued]:
        acknowledged: list[Enqueued] = []
        sent: asyncio.Task[set[UUID] | None] | None = None
        try:
            before: Sequence[NewJob] = ()
            for portion in portions():
                fast = not (tx.again or known or keyed(portion))
                parts = (
                    [many_jobs(portion, [tenant_id])]
                    if fast
                    else [{"jobs": jobs_as_json(part, [tenant_id])} for part in apart(portion)]
                )
                if sent is not None and (inserted := await sent) is not None:
                    acknowledged += await _acknowledged(tx, tenant_id, before, inserted)
                    before = ()
                sent = asyncio.create_task(insert(tx, fast, parts))
                await asyncio.sleep(0)  # lets it begin
                acknowledged += created(before)
                before = portion
            if sent is not None:
                inserted = await sent
                if inserted is None:
                    acknowledged += created(before)
                else:
                    acknowledged += await _acknowledged(tx, tenant_id, before, inserted)
        finally:
            if sent is not None:
                if not sent.done():  # the connection must be free for the rollback
                    sent.cancel()
                    await asyncio.wait([sent])
                if not sent.cancelled():
                    sent.exception()  # read: where the caller's jobs could not be read, that is the error the caller gets
        return acknowledged

    try:
        return await database.transact(work)
    except _Unreadable as unreadable:
        raise unreadable.error from None


async def _acknowledged(tx: Transaction, tenant_id: str, jobs: Sequence[NewJob], inserted: set[UUID]) -> list[Enqueued]:
    """What became of a portion, of which these were inserted. Raises IdempotencyConflict."""
    results = {id: Enqueued(id, created=True) for id in inserted}
    missing = [job for job in jobs if job.id not in results]
    for row in await tx.rows("find_enqueued", **lookup(missing, [tenant_id])) if missing else ():
        job = missing[row["n"] - 1]
        result = found(job, row["id"], row["other"])
        if isinstance(result, PerdureError):
            raise result
        results[job.id] = result
    if any(job.id not in results for job in missing):
        raise Restart("the job that has one of the keys is gone")
    return [results[job.id] for job in jobs]


async def enqueue_recorded(
    database: Database, tenant_id: str, job: NewJob, events: Sequence[NewEvent], checkpoint: str | None
) -> Enqueued:
    """A job and what its log begins with, in one transaction."""
    return await database.transact(lambda tx: recorded_in(tx, tenant_id, job, events, checkpoint))


async def enqueue_batch(database: Database, tenant_id: str, callback: NewJob, jobs: Sequence[NewJob]) -> Enqueued:
    """The jobs of a batch, the callback, and its wait for them, in one transaction."""
    wait = {"job_id": [callback.id], "key": [BATCH_KEY]}

    async def work(tx: Transaction) -> Enqueued:
        done = await recorded_in(tx, tenant_id, callback, [batch_opened(callback.id)], None)
        if done != (callback.id, True):
            return done
        for portion in chunks(jobs):
            await tx.rows("enqueue_joined", jobs=jobs_as_json(portion, [tenant_id]))
        await tx.rows("open_wait", **wait, kind=["child"], subject_id=[subject_of(callback.id)], until=[None])
        await tx.rows("await_jobs", **wait, child_ids=[",".join(str(job.id) for job in jobs)])
        return done

    return await database.transact(work)


async def recorded_in(
    tx: Transaction, tenant_id: str, job: NewJob, events: Sequence[NewEvent], checkpoint: str | None = None
) -> Enqueued:
    """A job and what its log begins with, in this transaction."""
    if job.origin_kind == "rerun" and job.idempotency_key is not None:
        await tx.rows("release_key", origin_id=job.origin_id, tenant_id=tenant_id, key=job.idempotency_key)
    if job.origin_kind == "rerun" and job.unique is not None:
        await tx.rows("release_unique", tenant_id=tenant_id, kind=job.kind, key=job.unique.key)
    if job.unique is None:
        inserted = await tx.rows("enqueue_one", **one_job(job, tenant_id))
    else:
        inserted = await tx.rows("enqueue_joined", jobs=jobs_as_json([job], [tenant_id]))
    if not inserted:
        row = await tx.row("find_enqueued", **lookup([job], [tenant_id]))
        if row is None:
            raise Restart("the job that has its key is gone")
        result = found(job, row["id"], row["other"])
        if isinstance(result, PerdureError):
            raise result
        return result
    version = 1
    for chunk in event_chunks(events):
        many = len(chunk)
        await tx.rows(
            "insert_events",
            ids=[job.id] * many,
            versions=list(range(version + 1, version + 1 + many)),
            attempts=[0] * many,
            event_ids=[event.event_id for event in chunk],
            types=[event.type for event in chunk],
            payloads=[event.payload for event in chunk],
        )
        version += many
    if events:
        await tx.rows("recorded_head", job_id=job.id, version=version)
    if checkpoint is not None:
        await tx.rows(
            "patch_state",
            job_id=[job.id],
            checkpoint=[checkpoint],
            progress=[None],
            progress_text=[None],
            tokens=[0],
            cost=[ZERO],
        )
    return Enqueued(job.id, created=True)
