"""Batches by a client: several jobs, and one that starts when all of them have ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.model.batches import Batch
from perdure.model.errors import InvalidInput
from perdure.model.timing import LAST_MOMENT
from perdure.runtime.batches import batch_of
from perdure.runtime.client.base import JobId
from perdure.runtime.client.enqueue import JobEnqueue, Request
from perdure.runtime.handle import Handle
from perdure.runtime.observer import Sending


class JobBatches(JobEnqueue):
    """See `jobs.Jobs`."""

    async def enqueue_batch(self, requests: Iterable[Request], callback: Request) -> Handle[Any]:
        """Store several jobs and a callback, in one transaction: a job that starts once all of them have ended, whatever ended
        them. Its handler reads by `ctx.batch()` what became of them. Returns the handle of the callback, whose id is that of the
        batch.

        The jobs are children of the callback: cancelling it cancels them. They have no idempotency key and no unique key. The
        callback may have an idempotency key: then a second call with it stores nothing and returns the first callback. It has no
        delay, run_at and unique key. Raises as `enqueue`, and InvalidInput for no jobs.
        """
        store, wanted = await self._store(), [callback, *requests]
        agents = await self._agents_of((request.options or {}).get("agent") for request in wanted)
        built = list(self._built(wanted, agents))
        (last, output), jobs = built[0], [new._replace(parent_id=built[0][0].id) for new, _ in built[1:]]
        if not jobs:
            raise InvalidInput("a batch has at least one job")
        if any(job.idempotency_key is not None or job.unique is not None for job in jobs):
            raise InvalidInput("the jobs of a batch have no idempotency key and no unique key", hint="the callback may")
        if last.unique is not None or last.delay or last.run_at is not None:
            raise InvalidInput("the callback of a batch has no unique key, delay and run_at")
        last = last._replace(run_at=LAST_MOMENT)
        with Sending(self._observer, [last, *jobs]) as sending:
            stored = await store.jobs.enqueue_batch(sending.jobs[0], sending.jobs[1:])
            if stored.created:
                sending.stored([stored, *(type(stored)(job.id, created=True) for job in jobs)])
        return Handle(self, stored.id, output, created=stored.created)

    async def batch(self, job_id: JobId) -> Batch:
        """The jobs of a batch and their statuses, by the id of its callback. Raises JobNotFound, AmbiguousId, InvalidInput."""
        return await batch_of(await self._store(), await self._id(job_id))
