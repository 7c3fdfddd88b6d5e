"""Enqueueing one job at a time: calls that arrive meanwhile share one INSERT."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

import asyncpg

from perdure.model.jobs import Enqueued, NewJob
from perdure.store.group_commit.limits import text_of_job
from perdure.store.postgres.engine.hot_writer import HotWriter
from perdure.store.postgres.jobs.enqueue_many import enqueue_together
from perdure.store.postgres.jobs.enqueue_values import created, found, jobs_as_json, keyed, lookup, many_jobs, one_job

HOT_STATEMENTS = ("enqueue_many", "enqueue_joined", "enqueue_one", "find_enqueued")


class EnqueueItem(NamedTuple):
    """One call of `enqueue`."""

    tenant_id: str
    job: NewJob


class EnqueueWriter(HotWriter[EnqueueItem, Enqueued]):
    """One INSERT for all jobs that arrived meanwhile."""

    async def write(self, items: Sequence[EnqueueItem]) -> Sequence[Enqueued | Exception]:
        """See `Writer`."""
        tenant_ids, jobs = zip(*items, strict=True)
        if len(items) > 1 and not keyed(jobs):
            with suppress(asyncpg.UniqueViolationError):
                await self._hot.rows("enqueue_many", **many_jobs(jobs, tenant_ids))
                self._notify(tenant_ids)
                return created(jobs)
        results: dict[UUID, Enqueued | Exception] = {}
        missing = items
        while missing:
            inserted = await self._insert(missing)
            results.update((id, Enqueued(id, created=True)) for id in inserted)
            if inserted:
                self._notify(tenant_ids)
            missing = [item for item in missing if item.job.id not in results]
            if missing:
                tenants, unknown = zip(*missing, strict=True)
                for row in await self._hot.rows("find_enqueued", **lookup(unknown, tenants)):
                    job = unknown[row["n"] - 1]
                    results[job.id] = found(job, row["id"], row["other"])
                # One that met nothing after all (what it met was pruned between the two statements) is inserted again.
                missing = [item for item in missing if item.job.id not in results]
        return [results[job.id] for job in jobs]

    async def _insert(self, items: Sequence[EnqueueItem]) -> list[UUID]:
        """The ids of those that were not there yet."""
        if len(items) == 1 and items[0].job.unique is None:
            [(tenant_id, job)] = items
            return [row["id"] for row in await self._hot.rows("enqueue_one", **one_job(job, tenant_id))]
        tenant_ids, jobs = zip(*items, strict=True)
        rows = await self._hot.rows("enqueue_joined", jobs=jobs_as_json(jobs, tenant_ids))
        return [UUID(row["id"]) for row in rows]

    async def find_written(self, items: Sequence[EnqueueItem]) -> Sequence[Enqueued | Exception | None]:
        """See `Writer`."""
        await self._hot.connect()
        tenant_ids, jobs = zip(*items, strict=True)
        rows = await self._hot.rows("find_enqueued", **lookup(jobs, tenant_ids, by_key=False))
        stored = {row["id"] for row in rows}
        return [Enqueued(job.id, created=True) if job.id in stored else None for job in jobs]

    async def write_separately(self, item: EnqueueItem) -> Enqueued:
        """See `Writer`."""
        async with self._separate:
            [enqueued] = await enqueue_together(self._database, item.tenant_id, [item.job])
        self._notify([item.tenant_id])
        return enqueued

    def subject(self, item: EnqueueItem) -> Hashable:
        """See `Writer`. Two writes with one key at once would wait for each other."""
        job = item.job
        if job.unique is not None:
            return (item.tenant_id, job.kind, job.unique.key, "unique")
        return job.id.int if job.idempotency_key is None else (item.tenant_id, job.kind, job.idempotency_key)

    def size(self, item: EnqueueItem) -> int:
        """See `Writer`."""
        return text_of_job(item.job)

    def _notify(self, tenant_ids: Sequence[str]) -> None:
        for tenant_id in {*tenant_ids}:
            self._notifier.notify(tenant_id, "work", "news")
