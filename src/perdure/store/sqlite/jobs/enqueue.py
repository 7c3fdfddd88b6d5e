"""Enqueueing: one job at a time sharing commits, or many in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple, get_args, get_type_hints
from uuid import UUID

from perdure.model.batches import BATCH_KEY, subject_of
from perdure.model.effects import patch_state
from perdure.model.errors import PerdureError
from perdure.model.events import NewEvent
from perdure.model.ids import same_json
from perdure.model.jobs import Enqueued, NewJob, lane_of
from perdure.model.timing import seconds
from perdure.store.child_rows import batch_opened
from perdure.store.errors import held_key, idempotency_conflict
from perdure.store.sqlite.engine.codec import span, stored
from perdure.store.sqlite.engine.connection import savepoint
from perdure.store.sqlite.engine.statements import SQL, row_list, write_rows

_MORE = ("tenant_id", "lane", "payload_hash")
"""Columns that are no fields of NewJob."""
_FIELDS = {name: place for place, name in enumerate((*NewJob._fields, *_MORE))}
_UNIQUE = ("unique_key", "unique_until", "on_conflict")
"""Columns of a job with a unique key."""
_in_order = itemgetter(*(_FIELDS[name] for name in row_list("enqueue_many").fields))
_PLACES = _FIELDS | {name: len(_FIELDS) + n for n, name in enumerate(_UNIQUE)}
_more_in_order = itemgetter(*(_PLACES[name] for name in row_list("enqueue_more").fields))
_RUN_AT = _FIELDS["run_at"]
_CONVERTED = [
    place for place, hint in enumerate(get_type_hints(NewJob).values()) if {UUID, datetime} & {hint, *get_args(hint)}
]
"""Fields that are not stored as they are."""


class EnqueueItem(NamedTuple):
    """One call of `enqueue`."""

    tenant_id: str
    job: NewJob


class _KnownId(Exception):
    """The id of a job that is there already is among those of new ones: they are stored one by one."""


def job_row(tenant_id: str, job: NewJob, now: int) -> tuple[Any, ...]:
    """The row of a job for `insert_of(job)`."""
    values: list[Any] = list(job)
    for place in _CONVERTED:
        if values[place] is not None:
            values[place] = stored(values[place])
    if values[_RUN_AT] is None:
        values[_RUN_AT] = now + span(job.delay)
    values += (tenant_id, lane_of(tenant_id, job.queue), job.payload_hash)
    row: tuple[Any, ...]
    if job.unique is None and job.parent_id is None:
        row = _in_order(values)
    elif job.unique is None:
        row = _more_in_order([*values, None, None, None])
    else:
        period = job.unique.period
        until = None if period is None else now + span(seconds(period))
        row = _more_in_order([*values, job.unique.key, until, job.unique.on_conflict])
    return row


def insert_of(job: NewJob) -> str:
    """The statement that inserts its row."""
    return "enqueue_many" if job.unique is None and job.parent_id is None else "enqueue_more"


def lookup(tenant_id: str, job: NewJob) -> dict[str, Any]:
    """The values of `find_enqueued` for a job."""
    return {
        "id": str(job.id),
        "tenant_id": tenant_id,
        "kind": job.kind,
        "key": job.idempotency_key,
        "payload_hash": job.payload_hash,
        "unique_key": None if job.unique is None else job.unique.key,
    }


def found(job: NewJob, id: UUID, other: str | None) -> Enqueued | PerdureError:
    """What a job that is not new turns out to be: stored by an earlier call, or a repeated key. `other` is the payload of the one
    that is there, unless the hashes say it is the same."""
    if id != job.id and job.unique is not None:
        return held_key(job, id)
    if id != job.id and other is not None and not same_json(other, job.payload):
        return idempotency_conflict(job, id)
    return Enqueued(id, created=False)


def enqueue_each(conn: sqlite3.Connection, now: int, items: Sequence[EnqueueItem]) -> Sequence[Enqueued | PerdureError]:
    """Each job is stored, found, or refused on its own."""
    if not any(job.idempotency_key or job.unique or job.parent_id for _, job in items):
        with suppress(_KnownId), savepoint(conn):
            if write_rows(conn, "enqueue_many", [job_row(*item, now) for item in items], now=now) == len(items):
                return [Enqueued(job.id, created=True) for _, job in items]
            raise _KnownId
    return [enqueue_one(conn, now, *item) for item in items]


def enqueue_all(conn: sqlite3.Connection, now: int, tenant_id: str, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """All jobs are stored or found, or the first refusal is raised."""
    results: list[Enqueued] = []
    for result in enqueue_each(conn, now, [EnqueueItem(tenant_id, job) for job in jobs]):
        if isinstance(result, PerdureError):
            raise result
        results.append(result)
    return results


def enqueue_one(conn: sqlite3.Connection, now: int, tenant_id: str, job: NewJob) -> Enqueued | PerdureError:
    """Store one job, or find it."""
    if job.idempotency_key is None and write_rows(conn, insert_of(job), [job_row(tenant_id, job, now)], now=now):
        return Enqueued(job.id, created=True)
    known = conn.execute(SQL["find_enqueued"], lookup(tenant_id, job)).fetchone()
    if known is not None:
        return found(job, UUID(known["id"]), known["other"])
    if write_rows(conn, insert_of(job), [job_row(tenant_id, job, now)], now=now):
        return Enqueued(job.id, created=True)
    raise sqlite3.IntegrityError("the job's id belongs to a job of another tenant")


def enqueue_recorded(
    conn: sqlite3.Connection, now: int, tenant_id: str, job: NewJob, events: Sequence[NewEvent], checkpoint: str | None
) -> Enqueued:
    """Store a job with a log and a checkpoint that it begins with."""
    if job.origin_kind == "rerun" and job.idempotency_key is not None:
        key = {"origin_id": str(job.origin_id), "tenant_id": tenant_id, "key": job.idempotency_key}
        conn.execute(SQL["release_key"], key)
    if job.origin_kind == "rerun" and job.unique is not None:
        conn.execute(SQL["release_unique"], {"tenant_id": tenant_id, "kind": job.kind, "key": job.unique.key})
    enqueued = enqueue_one(conn, now, tenant_id, job)
    if isinstance(enqueued, PerdureError):
        raise enqueued
    if not enqueued.created:
        return enqueued
    id = str(job.id)
    if events:
        rows = [(id, n, 0, event.event_id, event.type, event.payload) for n, event in enumerate(events, 2)]
        write_rows(conn, "append_many", rows, now=now)
        conn.execute(SQL["append_free"], {"job_id": id, "version": 1 + len(events), "now": now})
    if checkpoint is not None:
        statement, row = patch_state(checkpoint=checkpoint)
        conn.execute(SQL[statement], {name: stored(value) for name, value in row.items()} | {"job_id": id, "now": now})
    return enqueued


def enqueue_batch(
    conn: sqlite3.Connection, now: int, tenant_id: str, callback: NewJob, jobs: Sequence[NewJob]
) -> Enqueued:
    """Store the jobs of a batch, the callback, and its wait for them."""
    done = enqueue_recorded(conn, now, tenant_id, callback, [batch_opened(callback.id)], None)
    if done != (callback.id, True):
        return done
    write_rows(conn, "enqueue_more", [job_row(tenant_id, job, now) for job in jobs], now=now)
    wait = {"job_id": str(callback.id), "key": BATCH_KEY, "now": now}
    conn.execute(SQL["open_wait"], wait | {"kind": "child", "subject_id": subject_of(callback.id), "until": None})
    conn.execute(SQL["await_jobs"], wait | {"child_ids": ",".join(str(job.id) for job in jobs)})
    return done
