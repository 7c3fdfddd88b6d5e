"""The values of the enqueue statements, and what their answers mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from perdure.model.errors import PerdureError
from perdure.model.ids import same_json
from perdure.model.jobs import Enqueued, NewJob, lane_of
from perdure.store.errors import idempotency_conflict
from perdure.store.postgres.engine.hot_writer import alike


def many_jobs(jobs: Sequence[NewJob], tenant_ids: Sequence[str]) -> dict[str, Any]:
    """The values of `enqueue_many` and `add_many`: one array per column, of one element where all are the same, and of none where
    all are null: the driver looks at each element of each array, which is most of what a job costs here.

    tenant_ids: one of each job, or one for all of them.
    """
    (ids, kinds, payloads, queues, goals, priorities, retry_limits, delays, run_ats, deadlines, keys, origin_ids, origin_kinds,
     notes) = zip(*jobs, strict=True)  # fmt: skip
    keys = _empty_if_null(keys)
    tenant_ids = alike(tenant_ids)
    if len(tenant_ids) == 1:
        lanes = [lane_of(tenant_ids[0], queue) for queue in alike(queues)]
    else:
        lanes = [lane_of(tenant_id, job.queue) for tenant_id, job in zip(tenant_ids, jobs, strict=True)]
    return {
        "ids": ids,
        "tenant_ids": tenant_ids,
        "kinds": alike(kinds),
        "queues": alike(queues),
        "lanes": lanes,
        "goals": _empty_if_null(goals),
        "payloads": alike(payloads),
        "payload_hashes": [job.payload_hash for job in jobs] if keys else (),
        "priorities": alike(priorities),
        "retry_limits": alike(retry_limits),
        "run_ats": _empty_if_null(run_ats),
        "delays": alike(delays),
        "deadlines": _empty_if_null(deadlines),
        "keys": keys,
        "origin_ids": _empty_if_null(origin_ids),
        "origin_kinds": _empty_if_null(origin_kinds),
        "notes": alike(notes),
    }


def _empty_if_null(column: tuple[Any, ...]) -> tuple[Any, ...]:
    """A column that mostly is null."""
    return () if column.count(None) == len(column) else column


def one_job(job: NewJob, tenant_id: str) -> dict[str, Any]:
    """The values of `enqueue_one`."""
    return {
        "id": job.id,
        "tenant_id": tenant_id,
        "kind": job.kind,
        "queue": job.queue,
        "lane": lane_of(tenant_id, job.queue),
        "goal": job.goal,
        "payload": job.payload,
        "payload_hash": job.payload_hash,
        "priority": job.priority,
        "max_retries": job.max_retries,
        "run_at": job.run_at,
        "delay": job.delay,
        "deadline": job.deadline,
        "key": job.idempotency_key,
        "origin_id": job.origin_id,
        "origin_kind": job.origin_kind,
        "note": job.note,
    }


def lookup(jobs: Sequence[NewJob], tenant_ids: Sequence[str], *, by_key: bool = True) -> dict[str, Any]:
    """The values of `find_enqueued`. by_key: also by their idempotency keys."""
    return {
        "ids": [job.id for job in jobs],
        "tenant_ids": alike(tenant_ids),
        "kinds": [job.kind for job in jobs],
        "keys": [job.idempotency_key if by_key else None for job in jobs],
        "payload_hashes": [job.payload_hash for job in jobs],
    }


def keyed(jobs: Sequence[NewJob]) -> bool:
    """Whether any of them has an idempotency key."""
    return any(job.idempotency_key is not None for job in jobs)


def created(jobs: Sequence[NewJob]) -> list[Enqueued]:
    """What the callers of new jobs get."""
    return [Enqueued(job.id, created=True) for job in jobs]


def found(job: NewJob, id: UUID, other: str | None) -> Enqueued | PerdureError:
    """What a job that was not inserted turns out to be: itself, stored by a call whose answer was lost, or the one that had its
    key first. other: that one's payload, unless the hashes say it is the same."""
    if id == job.id:
        return Enqueued(job.id, created=True)
    if other is not None and not same_json(other, job.payload):
        return idempotency_conflict(job, id)
    return Enqueued(id, created=False)
