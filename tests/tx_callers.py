"""Programs with a transaction of their own: one way to treat every kind of connection that perdure may be handed as tx=.

Each caller has a table `orders` in perdure's database, and a transaction that its first statement begins.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

ORDERS = "create table orders (name text)"


@dataclass
class Caller:
    """tx: what is handed to perdure. The rest is what the program does by itself, on the same connection."""

    tx: Any
    run: Callable[[str], Awaitable[Any]]
    commit: Callable[[], Awaitable[Any]]
    rollback: Callable[[], Awaitable[Any]]

    async def order(self, name: str) -> None:
        """The program's own change, which begins the transaction."""
        await self.run(f"insert into orders values ('{name}')")


Opener = Callable[[str], AbstractAsyncContextManager[Caller]]


def plain(call: Callable[..., Any], *arguments: Any) -> Callable[..., Awaitable[Any]]:
    """A blocking call of a program that has no event loop, for tests that have one."""

    async def awaitable(*more: Any) -> Any:
        return call(*arguments, *more)

    return awaitable


def toolkit_url(url: str, driver: str) -> str:
    """The database of a store as SQLAlchemy names it."""
    scheme, _, place = url.partition(":")
    return f"{scheme}+{driver}:{place}" if driver else url


# -- PostgreSQL ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def of_psycopg(url: str) -> AsyncIterator[Caller]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as c:  # rows of another shape than perdure reads
        yield Caller(c, plain(c.execute), plain(c.commit), plain(c.rollback))


@asynccontextmanager
async def of_psycopg_cursor(url: str) -> AsyncIterator[Caller]:
    with psycopg.connect(url, cursor_factory=psycopg.RawCursor) as c, c.cursor() as cursor:
        yield Caller(psycopg.Cursor(c), plain(cursor.execute), plain(c.commit), plain(c.rollback))


@asynccontextmanager
async def of_psycopg_block(url: str) -> AsyncIterator[Caller]:
    """An explicit block on a connection in autocommit mode."""
    with psycopg.connect(url, autocommit=True) as c:
        block = c.transaction()
        tx = block.__enter__()

        async def commit() -> None:
            block.__exit__(None, None, None)

        async def rollback() -> None:
            block.__exit__(psycopg.Rollback, psycopg.Rollback(), None)

        yield Caller(tx, plain(c.execute), commit, rollback)


@asynccontextmanager
async def of_psycopg_async(url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url) as c:
        yield Caller(c.cursor(), c.execute, c.commit, c.rollback)


@asynccontextmanager
async def of_psycopg_async_block(url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as c:
        block = c.transaction()
        tx = await block.__aenter__()

        async def commit() -> None:
            await block.__aexit__(None, None, None)

        async def rollback() -> None:
            await block.__aexit__(psycopg.Rollback, psycopg.Rollback(), None)

        yield Caller(tx, c.execute, commit, rollback)


@asynccontextmanager
async def of_asyncpg(url: str) -> AsyncIterator[Caller]:
    c = await asyncpg.connect(url)
    await c.set_type_codec("json", encoder=repr, decoder=repr, schema="pg_catalog")  # as programs like to do
    tx = c.transaction()
    await tx.start()
    yield Caller(c, c.execute, tx.commit, tx.rollback)
    await c.close()


@asynccontextmanager
async def of_asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=0, max_size=1) as pool, pool.acquire() as c:
        tx = c.transaction()
        await tx.start()
        yield Caller(c, c.execute, tx.commit, tx.rollback)


# -- SQLite ----------------------------------------------------------------------------------------------------------------


def path(url: str) -> str:
    """The file of a SQLite store."""
    return url.removeprefix("sqlite:///")


@asynccontextmanager
async def of_sqlite3(url: str) -> AsyncIterator[Caller]:
    with closing(sqlite3.connect(path(url), timeout=30)) as c:
        c.row_factory = lambda cursor, row: {column[0]: value for column, value in zip(cursor.description, row)}  # noqa: B905
        yield Caller(c, plain(c.execute), plain(c.commit), plain(c.rollback))


@asynccontextmanager
async def of_sqlite3_cursor(url: str) -> AsyncIterator[Caller]:
    """Transactions begun by hand, and texts that are bytes."""
    with closing(sqlite3.connect(path(url), isolation_level=None, timeout=30)) as c:
        c.text_factory = bytes
        c.execute("begin")
        yield Caller(c.cursor(), plain(c.execute), plain(c.execute, "commit"), plain(c.execute, "rollback"))


@asynccontextmanager
async def of_aiosqlite(url: str) -> AsyncIterator[Caller]:
    async with aiosqlite.connect(path(url), timeout=30) as c:
        c.row_factory = aiosqlite.Row
        yield Caller(await c.cursor(), c.execute, c.commit, c.rollback)


# -- SQLAlchemy ------------------------------------------------------------------------------------------------------------


def of_connection(driver: str) -> Opener:
    """`engine.connect()`."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = sa.create_engine(toolkit_url(url, driver))
        with engine.connect() as c:
            yield Caller(c, plain(c.exec_driver_sql), plain(c.commit), plain(c.rollback))
        engine.dispose()

    return opened


def of_session(driver: str, *, scoped: bool = False) -> Opener:
    """`Session(engine)`."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = sa.create_engine(toolkit_url(url, driver))
        s = scoped_session(sessionmaker(engine)) if scoped else Session(engine)
        yield Caller(s, plain(lambda sql: s.execute(sa.text(sql))), plain(s.commit), plain(s.rollback))
        s.close()
        engine.dispose()

    return opened


def of_async_connection(driver: str) -> Opener:
    """`create_async_engine(url).connect()`."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(toolkit_url(url, driver))
        async with engine.connect() as c:
            yield Caller(c, c.exec_driver_sql, c.commit, c.rollback)
        await engine.dispose()

    return opened


def of_async_session(driver: str, *, scoped: bool = False) -> Opener:
    """`AsyncSession(engine)`."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(toolkit_url(url, driver))
        s: Any = AsyncSession(engine)
        if scoped:
            s = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        yield Caller(s, lambda sql: s.execute(sa.text(sql)), s.commit, s.rollback)
        await s.close()
        await engine.dispose()

    return opened


BLOCKING: dict[str, tuple[str, Opener]] = {
    "psycopg": ("postgres", of_psycopg),
    "psycopg cursor": ("postgres", of_psycopg_cursor),
    "psycopg block": ("postgres", of_psycopg_block),
    "sqlalchemy psycopg": ("postgres", of_connection("psycopg")),
    "session psycopg": ("postgres", of_session("psycopg")),
    "sqlite3": ("sqlite", of_sqlite3),
    "sqlite3 cursor": ("sqlite", of_sqlite3_cursor),
    "sqlalchemy sqlite": ("sqlite", of_connection("pysqlite")),
    "scoped session sqlite": ("sqlite", of_session("pysqlite", scoped=True)),
}
ASYNC: dict[str, tuple[str, Opener]] = {
    "psycopg async": ("postgres", of_psycopg_async),
    "psycopg async block": ("postgres", of_psycopg_async_block),
    "asyncpg": ("postgres", of_asyncpg),
    "asyncpg pool": ("postgres", of_asyncpg_pool),
    "sqlalchemy asyncpg": ("postgres", of_async_connection("asyncpg")),
    "session asyncpg": ("postgres", of_async_session("asyncpg")),
    "scoped session psycopg async": ("postgres", of_async_session("psycopg", scoped=True)),
    "aiosqlite": ("sqlite", of_aiosqlite),
    "session aiosqlite": ("sqlite", of_async_session("aiosqlite")),
}
EVERY = {**BLOCKING, **ASYNC}


async def names(url: str) -> list[str]:
    """What other sessions see in the table of orders."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(path(url), timeout=30)) as file:
            return [name for (name,) in file.execute("select name from orders order by 1")]
    server = await asyncpg.connect(url)
    try:
        return [row["name"] for row in await server.fetch("select name from orders order by 1")]
    finally:
        await server.close()


async def make_orders(url: str) -> None:
    """The program's own table."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(path(url), timeout=30)) as file:
            file.execute(ORDERS)
    else:
        server = await asyncpg.connect(url)
        await server.execute(ORDERS)
        await server.close()
