"""Enqueueing in the transaction of a caller's connection: sqlite3 or aiosqlite, also beneath SQLAlchemy."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from perdure.model.errors import PerdureError
from perdure.model.jobs import Enqueued, NewJob, lane_of
from perdure.store.sqlite.engine.base import SQL, Base
from perdure.store.sqlite.engine.database import micros, span
from perdure.store.sqlite.jobs.enqueue import acknowledge
from perdure.store.tx_enqueue.caller_connection import (
    ConnectionSteps,
    PreparedEnqueue,
    Rows,
    Steps,
    all_or_none,
    is_a,
    no_transaction,
    not_ours,
    other_database,
)

_BEGIN = "begin immediate"
_LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, from Python 3.12


class Foreign(Base):
    """See `protocol.JobStore`."""

    async def prepare_enqueue(self, tx: object, jobs: Sequence[NewJob]) -> PreparedEnqueue:
        """See `protocol.JobStore.prepare_enqueue`."""
        return PreparedEnqueue(tx, lambda beneath: self._connection_steps(beneath, jobs))

    def _connection_steps(self, beneath: Any, jobs: Sequence[NewJob]) -> ConnectionSteps:
        if isinstance(beneath, sqlite3.Cursor):
            beneath = beneath.connection
        if isinstance(beneath, sqlite3.Connection):
            if not beneath.in_transaction:
                _check_begins(beneath)
            return ConnectionSteps(self._steps(jobs, begin=not beneath.in_transaction), ask=_sqlite3(beneath))
        if is_a(beneath, "aiosqlite", "Cursor"):
            beneath = beneath._conn
        if is_a(beneath, "aiosqlite", "Connection"):
            return ConnectionSteps(self._steps(jobs, begin=not beneath.in_transaction), ask_async=_aiosqlite(beneath))
        raise not_ours(beneath, self._in_words)

    @property
    def _in_words(self) -> str:
        return (
            "a database in memory, which nobody else can reach" if self._path is None else f"SQLite file {self._path}"
        )

    def _steps(self, jobs: Sequence[NewJob], *, begin: bool) -> Steps[list[Enqueued]]:
        """What is done on the connection. begin: the driver would begin a transaction by itself before an insert."""
        databases = yield SQL["this_database"], ()
        self._check_place(databases)
        steps = all_or_none(_enqueue(jobs, self.tenant_id))
        if not begin:
            return (yield from steps)
        yield _BEGIN, None
        try:
            return (yield from steps)
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is what happened
                yield "rollback", None
            raise

    def _check_place(self, databases: Rows) -> None:
        """Raise OtherDatabase unless the connection's own file is the App's. An attached one does not count: with WAL, a
        commit over two files may be cut in half by a power cut."""
        file = next((os.fsdecode(file) for _, name, file in databases if _text(name) == "main" and file), None)
        if file is None:
            raise other_database("a connection to a database in memory", self._in_words)
        if self._path is None or not _same_file(file, self._path):
            raise other_database(f"a connection to {file}", self._in_words)


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)  # noqa: PTH121  the one call for two texts
    except OSError:
        return False


def _check_begins(connection: sqlite3.Connection) -> None:
    """Raise NoTransaction unless the driver would begin a transaction by itself before an insert."""
    mode = getattr(connection, "autocommit", _LEGACY)
    if mode is True or (mode == _LEGACY and connection.isolation_level is None):
        raise no_transaction("this connection is in autocommit mode: execute BEGIN IMMEDIATE first")


def _enqueue(jobs: Sequence[NewJob], tenant: str) -> Steps[list[Enqueued]]:
    results: list[Enqueued] = []
    for job in jobs:
        values = _values(job, tenant)
        if (yield SQL["enqueue_joined"], values):
            results.append(Enqueued(job.id, created=True))
            continue
        [(id, other)] = yield SQL["find_joined"], values
        result = acknowledge(job, UUID(_text(id)), None if other is None else _text(other))
        if isinstance(result, PerdureError):
            raise result
        results.append(result)
    return results


def _values(job: NewJob, tenant: str) -> dict[str, Any]:
    return {
        "id": str(job.id),
        "tenant": tenant,
        "kind": job.kind,
        "queue": job.queue,
        "lane": lane_of(tenant, job.queue),
        "goal": job.goal,
        "payload": job.payload,
        "payload_hash": job.payload_hash,
        "priority": job.priority,
        "max_retries": job.max_retries,
        "run_at": micros(job.run_at),
        "delay": span(job.delay),
        "deadline": micros(job.deadline),
        "key": job.idempotency_key,
        "origin_id": None if job.origin_id is None else str(job.origin_id),
        "origin_kind": job.origin_kind,
        "note": job.note,
    }


def _text(value: Any) -> str:
    """Text from a connection whose text_factory may be bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


# -- the drivers -----------------------------------------------------------------------------------------------------------


def _sqlite3(connection: sqlite3.Connection) -> Callable[[str, Any], Rows]:
    def ask(sql: str, parameters: Any) -> Rows:
        with contextlib.closing(sqlite3.Cursor(connection)) as cursor:
            cursor.row_factory = None  # whatever rows the caller likes, we read tuples
            return cursor.execute(sql, parameters or ()).fetchall()

    return ask


def _aiosqlite(connection: Any) -> Callable[[str, Any], Any]:
    async def ask(sql: str, parameters: Any) -> Rows:
        if sql == _BEGIN:
            await connection._execute(_check_begins, connection._conn)  # which may be looked at in its own thread only
        async with connection.execute(sql, parameters or ()) as cursor:
            cursor.row_factory = None
            rows: Rows = await cursor.fetchall()
            return rows

    return ask
