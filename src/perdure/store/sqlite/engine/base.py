"""What the rooms of the store share."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast
from uuid import UUID

from perdure.model.ids import new_event_id
from perdure.model.states import Status
from perdure.store.errors import job_not_found
from perdure.store.rows import Row
from perdure.store.sqlite.engine.database import Readers
from perdure.store.sqlite.engine.writer import Many, One, Writer
from perdure.store.statements import load_statements

T = TypeVar("T")
A = TypeVar("A")

SQL = load_statements("perdure.store.sqlite")


@contextmanager
def singly(conn: sqlite3.Connection) -> Iterator[None]:
    """A part of the running transaction that leaves nothing if it fails."""
    conn.execute("savepoint part")
    try:
        yield
    except BaseException:
        if conn.in_transaction:
            conn.execute("rollback to part")
            conn.execute("release part")
        raise
    conn.execute("release part")


class Base:
    """One tenant's view of a database: its writer and its readers."""

    tenant_id: str
    _path: str | None
    _writer: Writer
    _readers: Readers | None  # None: the database is in memory, where only the writer can see it

    def _write(self, one: One[T], topics: int) -> asyncio.Future[T]:
        return self._writer.run(one, topics)

    def _join(self, many: Many[A, T], argument: A, topics: int, size: int) -> asyncio.Future[T]:
        return self._writer.join(many, argument, topics, size)

    async def _read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        if self._readers is not None:
            return await self._readers.run(fn)
        return await self._writer.run(lambda conn, _: fn(conn))

    async def _rows(self, name: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        """All rows of a named statement that only reads."""
        return cast("list[Row]", await self._read(lambda conn: conn.execute(SQL[name], parameters).fetchall()))

    async def _row(self, name: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Row | None:
        """The first row of a named statement that only reads."""
        return cast("Row | None", await self._read(lambda conn: conn.execute(SQL[name], parameters).fetchone()))


class Held:
    """A job as the running transaction finds it: nobody else can change it before the commit."""

    __slots__ = ("attempt", "claim", "head", "id", "status")

    def __init__(self, conn: sqlite3.Connection, job_id: UUID | str, tenant: str) -> None:
        """Raises JobNotFound."""
        self.id = str(job_id)
        job = conn.execute(SQL["lock_job"], (self.id, tenant)).fetchone()
        if job is None:
            raise job_not_found(job_id)
        self.status = Status(job["status"])
        self.attempt: int = job["attempt"]
        self.claim = cast("Row | None", conn.execute(SQL["lock_claim"], (self.id,)).fetchone())
        self.head: int = job["version"] if self.claim is None else self.claim["version"]

    def leased(self, now: int) -> bool:
        """True where a worker holds it and its lease has not run out."""
        return self.claim is not None and self.claim["expires_at"] > now

    def write_event(self, conn: sqlite3.Connection, now: int, type: str, payload: str, id: str | None = None) -> int:
        """Append an event at the head of the log, leased or not; return its version."""
        self.head += 1
        values = (self.id, self.head, now, self.attempt, id or new_event_id(), type, payload)
        conn.execute(SQL["append_many"], values)
        if self.claim is None:
            conn.execute(SQL["append_free"], (self.head, now, self.id))
        else:
            conn.execute(SQL["append_leased"], (self.head, self.id))
        return self.head
