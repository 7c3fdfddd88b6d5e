"""The stores that are measured: fresh databases on a durable PostgreSQL server, fresh SQLite files, and their yardsticks."""

import asyncio
import itertools
import os
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench import sqlite_yardstick, yardstick
from bench.meter import family_cpu, parent_of
from perdure.store.open import open_store
from tests.postgres_server import PostgresServer

URL_VARIABLE = "PERDURE_BENCH_DATABASE_URL"
FirstRow = Callable[[str], Awaitable[list[Any]]]
LOCAL = {None, "localhost", "127.0.0.1", "::1"}
numbers = itertools.count(1)


class Target(Protocol):
    """A kind of store to measure."""

    name: str
    prefix: str
    """Before a table's name in SQL."""
    has_server: bool
    """See `meter.Metered`."""

    async def about(self) -> str:
        """The engine, its version and how durable it is."""
        ...

    def fresh(self) -> AbstractAsyncContextManager[str]:
        """The URL of a new, migrated, empty database, which is dropped at the end."""
        ...

    async def yardstick(self, name: str, jobs: int) -> float:
        """One measure of the bare database: operations per second."""
        ...

    async def sql(self, url: str, script: str) -> list[Any]:
        """Run statements; with a single SELECT, return its first row."""
        ...

    async def settle(self, url: str) -> None:
        """Do now what the database would do in the background while the clock runs."""
        ...

    def connected(self, url: str) -> AbstractAsyncContextManager[FirstRow]:
        """A connection that stays open: a function that returns the first row of a SELECT."""
        ...

    async def server_cpu(self) -> float | None:
        """See `meter.Metered`."""
        ...

    async def log_bytes(self, url: str) -> int | None:
        """See `meter.Metered`."""
        ...


class PostgresTarget:
    """Databases on the server at `url`, by default PERDURE_BENCH_DATABASE_URL (the role must be allowed to create them), or on
    one that is started for the benchmark, with fsync on. Start it from the main thread."""

    name = "postgres"
    prefix = "perdure."
    has_server = True

    def __init__(self, url: str | None = None) -> None:
        self._given = url or os.environ.get(URL_VARIABLE)
        self._server = None if self._given else PostgresServer(durable=True, own=True)
        self._stem = f"perdure_bench_{os.getpid()}"
        self._postmaster: int | None = None

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
        own = "started for the benchmark" if self._server else f"from {URL_VARIABLE}"
        return f"PostgreSQL {row[0]} ({own}), fsync {row[1]}, synchronous_commit {row[2]}, shared_buffers {row[3]}"

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[str]:
        database = f"{self._stem}_{next(numbers)}"
        await self.sql(self._url(None), f"create database {database}")
        try:
            url = self._url(database)
            store = await open_store(url)
            try:
                await store.schema.migrate()
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
        async with self.connected(url) as run:
            return await run(script)

    @asynccontextmanager
    async def connected(self, url: str) -> AsyncIterator[FirstRow]:
        conn = await asyncpg.connect(url)

        async def run(script: str) -> list[Any]:
            if script.startswith("select"):
                return list(await conn.fetchrow(script) or ())
            await conn.execute(script)
            return []

        try:
            yield run
        finally:
            await conn.close()

    async def settle(self, url: str) -> None:
        await self.sql(url, "vacuum analyze")
        await self.sql(url, "checkpoint")

    async def server_cpu(self) -> float | None:
        if self._postmaster is None:
            if self._server is not None:
                self._postmaster = self._server.pid
            else:  # 0 where the server runs on another machine, whose processor time cannot be read
                self._postmaster = await self._parent_of_a_backend() or 0
        return family_cpu(self._postmaster) if self._postmaster else None

    async def _parent_of_a_backend(self) -> int | None:
        if urlsplit(self._url(None)).hostname not in LOCAL:
            return None
        conn = await asyncpg.connect(self._url(None))
        try:
            return parent_of(conn.get_server_pid(), "postgres")
        finally:
            await conn.close()

    async def log_bytes(self, url: str) -> int | None:
        return int((await self.sql(url, "select pg_current_wal_lsn() - '0/0'"))[0])

    def _url(self, database: str | None) -> str:
        if self._server is not None:
            return self._server.url(database or "postgres")
        assert self._given is not None
        return urlunsplit(urlsplit(self._given)._replace(path=f"/{database}")) if database else self._given


class SqliteTarget:
    """Files in a temporary directory (TMPDIR says where)."""

    name = "sqlite"
    prefix = ""
    has_server = False

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
                await store.schema.migrate()
            finally:
                await store.close()
            yield url
        finally:
            await asyncio.to_thread(shutil.rmtree, home)

    async def yardstick(self, name: str, jobs: int) -> float:
        return await asyncio.to_thread(sqlite_yardstick.measure, self._home, name, jobs=jobs)

    async def sql(self, url: str, script: str) -> list[Any]:
        async with self.connected(url) as run:
            return await run(script)

    @asynccontextmanager
    async def connected(self, url: str) -> AsyncIterator[FirstRow]:
        path = url.removeprefix("sqlite:///")
        conn = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)

        def now(script: str) -> list[Any]:
            if script.startswith("select"):
                return list(conn.execute(script).fetchone() or ())
            conn.executescript(f"begin immediate; {script}; commit")
            return []

        async def run(script: str) -> list[Any]:
            return await asyncio.to_thread(now, script)

        try:
            yield run
        finally:
            conn.close()

    async def settle(self, url: str) -> None:
        return

    async def server_cpu(self) -> float | None:
        return None

    async def log_bytes(self, url: str) -> int | None:
        return None  # the file is written over from its beginning


TARGETS: dict[str, type[PostgresTarget] | type[SqliteTarget]] = {"postgres": PostgresTarget, "sqlite": SqliteTarget}
