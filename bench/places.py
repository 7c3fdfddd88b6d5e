"""Where the workloads run: fresh databases on a durable PostgreSQL, fresh files for SQLite, and their yardsticks."""

import asyncio
import itertools
import os
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench import sqlite_yardstick, yardstick
from bench.meter import family_cpu
from perdure.store.open import open_store
from tests.postgres_server import PostgresServer

URL_VARIABLE = "PERDURE_BENCH_DATABASE_URL"
numbers = itertools.count(1)


class Place(Protocol):
    """A kind of store to measure."""

    name: str
    prefix: str
    """Before a table's name in SQL."""

    async def about(self) -> str:
        """The engine, its version and how durable it is."""
        ...

    def fresh(self) -> Any:
        """An async context: the URL of a new, migrated, empty database, which is dropped at the end."""
        ...

    async def yardstick(self, name: str, jobs: int) -> float:
        """One measure of the bare database: operations per second."""
        ...

    async def sql(self, url: str, script: str) -> list[Any]:
        """Run statements by hand; with a single SELECT, return its first row."""
        ...

    def server_cpu(self) -> float | None:
        """See `meter.Metered`."""
        ...

    async def log_bytes(self, url: str) -> int | None:
        """See `meter.Metered`."""
        ...


class PostgresPlace:
    """Databases on the server at PERDURE_BENCH_DATABASE_URL (the role must be allowed to create them), or on one of our
    own with fsync on. Start it from the main thread."""

    name = "postgres"
    prefix = "perdure."

    def __init__(self) -> None:
        self._given = os.environ.get(URL_VARIABLE)
        self._server = None if self._given else PostgresServer(durable=True, own=True)
        self._stem = f"perdure_bench_{os.getpid()}"

    def __enter__(self) -> Self:
        if self._server is not None:
            self._server.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._server is not None:
            self._server.__exit__(kind, error, tb)

    async def about(self) -> str:
        row = await self.sql(
            self._url(None),
            "select current_setting('server_version') v, current_setting('fsync') f, "
            "current_setting('synchronous_commit') c, current_setting('shared_buffers') b",
        )
        own = "our own" if self._server else f"from {URL_VARIABLE}"
        return f"PostgreSQL {row[0]} ({own}), fsync {row[1]}, synchronous_commit {row[2]}, shared_buffers {row[3]}"

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[str]:
        database = f"{self._stem}_{next(numbers)}"
        await self.sql(self._url(None), f"create database {database}")
        try:
            url = self._url(database)
            store = await open_store(url)
            try:
                await store.migrate()
            finally:
                await store.close()
            await self.sql(url, "checkpoint")
            yield url
        finally:
            await self.sql(self._url(None), f"drop database {database} with (force)")

    async def yardstick(self, name: str, jobs: int) -> float:
        async with self.fresh() as url:
            return await yardstick.measure(url, name, jobs=jobs)

    async def sql(self, url: str, script: str) -> list[Any]:
        conn = await asyncpg.connect(url)
        try:
            if script.startswith("select"):
                return list(await conn.fetchrow(script) or ())
            await conn.execute(script)
            return []
        finally:
            await conn.close()

    def server_cpu(self) -> float | None:
        return None if self._server is None else family_cpu(self._server.pid)

    async def log_bytes(self, url: str) -> int | None:
        return int((await self.sql(url, "select pg_current_wal_lsn() - '0/0'"))[0])

    def _url(self, database: str | None) -> str:
        if self._server is not None:
            return self._server.url(database or "postgres")
        assert self._given is not None
        return urlunsplit(urlsplit(self._given)._replace(path=f"/{database}")) if database else self._given


class SqlitePlace:
    """Files in a temporary directory (TMPDIR says where)."""

    name = "sqlite"
    prefix = ""

    def __enter__(self) -> Self:
        self._home = Path(tempfile.mkdtemp(prefix="perdure-bench-"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        shutil.rmtree(self._home, ignore_errors=True)

    async def about(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}, WAL, synchronous=FULL"

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[str]:
        home = self._home / str(next(numbers))
        home.mkdir()
        try:
            url = f"sqlite:///{home}/perdure.db"
            store = await open_store(url)
            try:
                await store.migrate()
            finally:
                await store.close()
            yield url
        finally:
            await asyncio.to_thread(shutil.rmtree, home)

    async def yardstick(self, name: str, jobs: int) -> float:
        return await asyncio.to_thread(sqlite_yardstick.measure, self._home, name, jobs=jobs)

    async def sql(self, url: str, script: str) -> list[Any]:
        return await asyncio.to_thread(self._sql, url.removeprefix("sqlite:///"), script)

    def server_cpu(self) -> float | None:
        return None  # there is no server: the client's time is all of it

    async def log_bytes(self, url: str) -> int | None:
        return None  # the file is written over from its beginning

    def _sql(self, path: str, script: str) -> list[Any]:
        conn = sqlite3.connect(path, isolation_level=None, timeout=60)
        try:
            if script.startswith("select"):
                return list(conn.execute(script).fetchone() or ())
            conn.executescript(f"begin immediate; {script}; commit")
            return []
        finally:
            conn.close()


PLACES: dict[str, type[PostgresPlace] | type[SqlitePlace]] = {"postgres": PostgresPlace, "sqlite": SqlitePlace}
