"""Enqueueing in the transaction of a caller's connection: sqlite3 or aiosqlite, also beneath SQLAlchemy."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from perdure.model.errors import PerdureError
from perdure.model.events import NewEvent
from perdure.model.jobs import Enqueued, NewJob
from perdure.store.sqlite.engine.statements import SQL, one_row
from perdure.store.sqlite.jobs.enqueue import found, insert_of, job_row, lookup
from perdure.store.tx_enqueue.caller_connection import (
    ConnectionSteps,
    Rows,
    Steps,
    all_or_none,
    is_a,
    no_transaction,
    not_ours,
    other_database,
)

_BEGIN = "begin immediate"
FirstEvents: TypeAlias = Mapping[UUID, Sequence[NewEvent]]
"""What the logs of jobs begin with, by job."""
_LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, from Python 3.12


def connection_steps(
    connection: Any, jobs: Sequence[NewJob], first: FirstEvents, tenant_id: str, path: str | None
) -> ConnectionSteps:
    """What is to be done on a driver's connection, and how to ask it. path: the store's file, None for one in memory.

    Raises UnsupportedTransaction, NoTransaction, OtherDatabase.
    """
    if isinstance(connection, sqlite3.Cursor):
        connection = connection.connection
    if isinstance(connection, sqlite3.Connection):
        begin = not connection.in_transaction
        if begin:
            _check_begins(connection)
        return ConnectionSteps(_steps(jobs, first, tenant_id, path, begin=begin), ask=_sqlite3(connection))
    if is_a(connection, "aiosqlite", "Cursor"):
        connection = connection._conn
    if is_a(connection, "aiosqlite", "Connection"):
        begin = not connection.in_transaction
        return ConnectionSteps(_steps(jobs, first, tenant_id, path, begin=begin), ask_async=_aiosqlite(connection))
    raise not_ours(connection, _in_words(path))


def _in_words(path: str | None) -> str:
    return "a database in memory, which no other connection can reach" if path is None else f"SQLite file {path}"


def _steps(
    jobs: Sequence[NewJob], first: FirstEvents, tenant_id: str, path: str | None, *, begin: bool
) -> Steps[list[Enqueued]]:
    """What is done on the connection. begin: the driver would begin a transaction by itself before an insert."""
    databases = yield SQL["this_database"], ()
    _check_file(databases, path)
    steps = all_or_none(_enqueue(jobs, first, tenant_id))
    if not begin:
        return (yield from steps)
    yield _BEGIN, None
    try:
        return (yield from steps)
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is what happened
            yield "rollback", None
        raise


def _check_file(databases: Rows, path: str | None) -> None:
    """Raise OtherDatabase unless the connection's own file is the store's. An attached one does not count: with WAL, a commit
    over two files may be cut in half by a power cut."""
    file = next((os.fsdecode(file) for _, name, file in databases if _text(name) == "main" and file), None)
    if file is None:
        raise other_database("a connection to a database in memory", _in_words(path))
    if path is None or not _same_file(file, path):
        raise other_database(f"a connection to {file}", _in_words(path))


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


def _enqueue(jobs: Sequence[NewJob], first: FirstEvents, tenant_id: str) -> Steps[list[Enqueued]]:
    yield SQL["lock_database"], ()
    [(now,)] = yield SQL["caller_now"], ()
    results: list[Enqueued] = []
    for job in jobs:
        inserted = 0
        if job.unique is not None:  # a trigger looks who has the key, and may replace what that one is to do
            yield one_row(insert_of(job), job_row(tenant_id, job, int(now)), now=int(now))
            [(inserted,)] = yield SQL["rows_changed"], ()
        known = () if inserted else (yield SQL["find_enqueued"], lookup(tenant_id, job))
        if known:
            [(id, other)] = known
            result = found(job, UUID(_text(id)), None if other is None else _text(other))
            if isinstance(result, PerdureError):
                raise result
            results.append(result)
            continue
        if job.unique is None:
            yield one_row("enqueue_many", job_row(tenant_id, job, int(now)), now=int(now))
            [(inserted,)] = yield SQL["rows_changed"], ()
        if not inserted:
            raise sqlite3.IntegrityError("the job's id belongs to a job of another tenant")
        results.append(Enqueued(job.id, created=True))
        head: dict[str, Any] = {"job_id": str(job.id), "now": int(now)}
        events = first.get(job.id, ())
        for version, event in enumerate(events, 2):
            yield SQL["begin_logs"], head | {"version": version, "type": event.type, "payload": event.payload}
        if events:
            yield SQL["joined_head"], head | {"version": 1 + len(events)}
    return results


def _text(value: Any) -> str:
    """Text from a connection whose text_factory may be bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


# -- the drivers -----------------------------------------------------------------------------------------------------------


def _sqlite3(connection: sqlite3.Connection) -> Callable[[str, Any], Rows]:
    def ask(sql: str, parameters: Any) -> Rows:
        with contextlib.closing(sqlite3.Cursor(connection)) as cursor:
            cursor.row_factory = None  # whatever rows the caller's connection makes, we read tuples
            return cursor.execute(sql, parameters or ()).fetchall()

    return ask


def _aiosqlite(connection: Any) -> Callable[[str, Any], Any]:
    async def ask(sql: str, parameters: Any) -> Rows:
        if sql == _BEGIN:
            await connection._execute(_check_begins, connection._conn)  # which may be used in its own thread only
        async with connection.execute(sql, parameters or ()) as cursor:
            cursor.row_factory = None
            rows: Rows = await cursor.fetchall()
            return rows

    return ask
