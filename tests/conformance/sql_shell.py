"""Plain connections to the database of a store, as of psql or the sqlite3 shell, for what its methods never do.

Statements are written once for both dialects, without a schema; ids and times are spelled by `id()` and `ago()`.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol
from uuid import UUID

import asyncpg

Rows = list[dict[str, Any]]


class Refused(Exception):
    """The database itself said no: a trigger or a constraint."""


class Shell(Protocol):
    """One connection, every statement its own transaction unless BEGIN is typed."""

    postgres: bool

    async def run(self, sql: str) -> Rows:
        """Run one statement and return its rows. Raises `Refused`."""
        ...

    def id(self, id: UUID) -> str:
        """The literal of an id."""
        ...

    def ago(self, seconds: float) -> str:
        """The expression of a moment that many seconds before database time."""
        ...

    def text(self, column: str) -> str:
        """The expression of a column as text, exactly as stored."""
        ...


class PostgresShell:
    """As psql does it."""

    postgres = True

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self.connection = connection

    async def run(self, sql: str) -> Rows:
        try:
            return [dict(row) for row in await self.connection.fetch(sql)]
        except asyncpg.IntegrityConstraintViolationError as error:
            raise Refused(str(error)) from error

    def id(self, id: UUID) -> str:
        return f"'{id}'::uuid"

    def ago(self, seconds: float) -> str:
        return f"(perdure.db_now() - interval '{seconds} seconds')"

    def text(self, column: str) -> str:
        return f"{column}::text"


class SqliteShell:
    """As the sqlite3 shell does it: nothing of perdure's is loaded into it."""

    postgres = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    async def run(self, sql: str) -> Rows:
        try:
            return [dict(row) for row in self.connection.execute(sql)]
        except sqlite3.IntegrityError as error:
            raise Refused(str(error)) from error

    def id(self, id: UUID) -> str:
        return f"'{id}'"

    def ago(self, seconds: float) -> str:
        return f"((select now from clock) - {round(seconds * 1_000_000)})"

    def text(self, column: str) -> str:
        return column


@asynccontextmanager
async def open_shell(url: str) -> AsyncIterator[Shell]:
    """Connect to the database of a store as a person would."""
    if url.startswith("sqlite:///"):
        file = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=20)
        file.row_factory = sqlite3.Row
        try:
            yield SqliteShell(file)
        finally:
            file.close()
    else:
        connection = await asyncpg.connect(url, server_settings={"search_path": "perdure"})
        try:
            yield PostgresShell(connection)
        finally:
            await connection.close()


async def dump(shell: Shell) -> dict[str, str]:
    """Everything the database holds, as text, by table."""
    if shell.postgres:
        names = "select tablename as name from pg_tables where schemaname = 'perdure'"
    else:
        names = "select name from sqlite_master where type = 'table'"
    tables = [str(row["name"]) for row in await shell.run(names)]
    rows = "select row_to_json(t)::text as row from {} t" if shell.postgres else "select * from {}"
    return {name: "\n".join(repr(row) for row in await shell.run(rows.format(name))) for name in tables}
