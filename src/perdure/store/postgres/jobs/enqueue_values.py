"""The values of the enqueue statements, and what their answers mean.

A field of `NewJob` is a parameter of the same name: what is written here holds for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from perdure.model.errors import PerdureError
from perdure.model.ids import same_json
from perdure.model.jobs import Enqueued, NewJob, lane_of
from perdure.store.errors import held_key, idempotency_conflict
from perdure.store.postgres.engine.hot_writer import alike

NULLABLE = frozenset(name for name, default in NewJob._field_defaults.items() if default is None)
"""The fields that may be null."""


RARE = ("unique", "parent_id")
"""The fields that `enqueue_many` and `enqueue_one` do not store."""


def many_jobs(jobs: Sequence[NewJob], tenant_ids: Sequence[str]) -> dict[str, Any]:
    """The values of `enqueue_many`: one array for each column, of one element where all are the same and never null, and of none
    where all are null: the driver looks at each element of each array, which is most of what a job costs here.

    tenant_ids: one of each job, or one for all of them.
    """
    columns = zip(NewJob._fields, zip(*jobs, strict=True), strict=True)
    values: dict[str, Any] = {
        name: _empty_if_null(column) if name in NULLABLE else alike(column) for name, column in columns
    }
    for name in RARE:  # they are stored by enqueue_joined
        del values[name]
    tenant_ids = alike(tenant_ids)
    if len(tenant_ids) == 1:
        values["lane"] = [lane_of(tenant_ids[0], queue) for queue in values["queue"]]
    else:
        values["lane"] = [lane_of(tenant_id, job.queue) for tenant_id, job in zip(tenant_ids, jobs, strict=True)]
    values["tenant_id"] = tenant_ids
    values["payload_hash"] = [job.payload_hash for job in jobs] if values["idempotency_key"] else ()
    return values


def _empty_if_null(column: Sequence[Any]) -> Sequence[Any]:
    """A column that mostly is null."""
    return () if column.count(None) == len(column) else column


def one_job(job: NewJob, tenant_id: str) -> dict[str, Any]:
    """The values of `enqueue_one`."""
    values = {
        **job._asdict(),
        "tenant_id": tenant_id,
        "lane": lane_of(tenant_id, job.queue),
        "payload_hash": job.payload_hash,
    }
    for name in RARE:
        del values[name]
    return values


def jobs_as_json(jobs: Sequence[NewJob], tenant_ids: Sequence[str]) -> str:
    """The value of `enqueue_joined` and `find_joined`: the jobs as text in ASCII, whatever encoding the connection has.

    tenant_ids: one of each job, or one for all of them.
    """
    if len(tenant_ids) == 1:
        tenant_ids = [*tenant_ids] * len(jobs)
    rows = [one_job(job, id) | _rare(job) for job, id in zip(jobs, tenant_ids, strict=True)]
    return json.dumps(rows, default=_as_text)


def _rare(job: NewJob) -> dict[str, Any]:
    unique, parent = job.unique, {} if job.parent_id is None else {"parent_id": job.parent_id}
    if unique is None:
        return parent
    return parent | {"unique_key": unique.key, "unique_period": unique.period, "on_conflict": unique.on_conflict}


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def apart(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """The jobs in order, in parts for one `enqueue_joined` each: a job cannot be replaced by the statement that inserts it."""
    keys: set[tuple[str, str]] = set()
    start = 0
    for n, job in enumerate(jobs):
        if job.unique is None:
            continue
        if (key := (job.kind, job.unique.key)) in keys:
            yield jobs[start:n]
            start = n
            keys.clear()
        keys.add(key)
    yield jobs[start:]


def lookup(jobs: Sequence[NewJob], tenant_ids: Sequence[str], *, by_key: bool = True) -> dict[str, Any]:
    """The values of `find_enqueued`. by_key: also by their keys."""
    return {
        "id": [job.id for job in jobs],
        "tenant_id": alike(tenant_ids),
        "kind": [job.kind for job in jobs],
        "idempotency_key": [job.idempotency_key if by_key else None for job in jobs],
        "payload_hash": [job.payload_hash for job in jobs],
        "unique_key": [job.unique.key if job.unique is not None and by_key else None for job in jobs],
    }


def keyed(jobs: Sequence[NewJob]) -> bool:
    """Whether any of them has an idempotency key, a unique key, or a parent."""
    return any(job.idempotency_key is not None or job.unique is not None or job.parent_id is not None for job in jobs)


def created(jobs: Sequence[NewJob]) -> list[Enqueued]:
    """What the callers of new jobs get."""
    return [Enqueued(job.id, created=True) for job in jobs]


def found(job: NewJob, id: UUID, other: str | None) -> Enqueued | PerdureError:
    """What a job that was not inserted turns out to be: itself, stored by a call whose answer was lost, or the one that had its
    key first. other: that one's payload, unless the hashes say it is the same."""
    if id == job.id:
        return Enqueued(job.id, created=True)
    if job.unique is not None:
        return held_key(job, id)
    if other is not None and not same_json(other, job.payload):
        return idempotency_conflict(job, id)
    return Enqueued(id, created=False)
