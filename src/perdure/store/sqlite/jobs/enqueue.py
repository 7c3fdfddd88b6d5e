"""Enqueueing: one job at a time sharing commits, or many in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from perdure.model.errors import PerdureError
from perdure.model.events import NewEvent
from perdure.model.ids import same_json
from perdure.model.jobs import Enqueued, NewJob, lane_of
from perdure.store.errors import idempotency_conflict
from perdure.store.group_commit.limits import text_of_job
from perdure.store.sqlite.engine.base import SQL, Base, singly
from perdure.store.sqlite.engine.bulk import write_rows
from perdure.store.sqlite.engine.database import micros, span
from perdure.store.sqlite.engine.writer import NEWS, WORK


def _values(job: NewJob, tenant: str, now: int) -> tuple[Any, ...]:
    run_at = micros(job.run_at) if job.run_at is not None else now + span(job.delay)
    return (
        str(job.id), tenant, job.kind, job.queue, lane_of(tenant, job.queue), job.goal, job.payload, job.payload_hash,
        job.priority, job.max_retries, run_at, micros(job.deadline), job.idempotency_key,
        None if job.origin_id is None else str(job.origin_id), job.origin_kind, job.note, now, now,
    )  # fmt: skip


def acknowledge(job: NewJob, id: UUID, other: str | None) -> Enqueued | PerdureError:
    """What a job that is not new turns out to be: stored before, or a repeated key. `other` is the payload of the one that is
    there, where it is not the same text."""
    if id != job.id and other is not None and not same_json(other, job.payload):
        return idempotency_conflict(job, id)
    return Enqueued(id, created=False)


class _Known(Exception):
    """An id that is there already hides among new ones: one by one."""


class Enqueueing(Base):
    """See `protocol.JobStore`."""

    async def enqueue(self, job: NewJob) -> Enqueued:
        """See `protocol.JobStore.enqueue`."""
        return await self._join(self._enqueue_each, job, WORK | NEWS, text_of_job(job))

    async def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """See `protocol.JobStore.enqueue_many`."""
        some = list(jobs)

        def all_or_none(conn: sqlite3.Connection, now: int) -> list[Enqueued]:
            results: list[Enqueued] = []
            for result in self._enqueue_each(conn, now, some):
                if isinstance(result, PerdureError):
                    raise result
                results.append(result)
            return results

        return await self._write(all_or_none, WORK | NEWS) if some else []

    async def enqueue_recorded(
        self, job: NewJob, events: Sequence[NewEvent], *, checkpoint: str | None = None
    ) -> Enqueued:
        """See `protocol.JobStore.enqueue_recorded`."""

        def one(conn: sqlite3.Connection, now: int) -> Enqueued:
            stored = self._enqueue_one(conn, now, job)
            if isinstance(stored, PerdureError):
                raise stored
            if not stored.created:
                return stored
            id = str(job.id)
            if events:
                rows = [(id, n, now, 0, e.event_id, e.type, e.payload) for n, e in enumerate(events, 2)]
                conn.executemany(SQL["append_many"], rows)
                conn.execute(SQL["append_free"], (1 + len(events), now, id))
            if checkpoint is not None:
                conn.execute(SQL["patch_state"], (id, checkpoint, None, None, 0, 0.0, now))
            return stored

        return await self._write(one, WORK | NEWS)

    def _enqueue_each(
        self, conn: sqlite3.Connection, now: int, jobs: Sequence[NewJob]
    ) -> list[Enqueued | PerdureError]:
        """Each job is stored, found, or refused on its own."""
        tenant = self.tenant_id
        if not any(job.idempotency_key for job in jobs):
            with suppress(_Known), singly(conn):
                if write_rows(conn, "enqueue_many", [_values(job, tenant, now) for job in jobs]) == len(jobs):
                    return [Enqueued(job.id, created=True) for job in jobs]
                raise _Known
        return [self._enqueue_one(conn, now, job) for job in jobs]

    def _enqueue_one(self, conn: sqlite3.Connection, now: int, job: NewJob) -> Enqueued | PerdureError:
        where = {
            "id": str(job.id),
            "tenant": self.tenant_id,
            "kind": job.kind,
            "key": job.idempotency_key,
            "payload_hash": job.payload_hash,
        }
        if job.idempotency_key is not None and (found := conn.execute(SQL["find_key"], where).fetchone()):
            return acknowledge(job, UUID(found["id"]), found["other"])
        if conn.execute(SQL["enqueue_many"], _values(job, self.tenant_id, now)).rowcount == 1:
            return Enqueued(job.id, created=True)
        found = conn.execute(SQL["find_enqueued"], where).fetchone()
        if found is None:
            raise sqlite3.IntegrityError("the job's id belongs to a job of another tenant")
        return acknowledge(job, UUID(found["id"]), found["other"])
