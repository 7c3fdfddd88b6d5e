"""tx=: what perdure cannot or must not join is refused, and the caller's transaction goes on as if nothing had been said."""

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from perdure import App, Request
from perdure.model.errors import NoTransaction, OtherDatabase, PerdureError, UnsupportedTransaction
from perdure.store.postgres.store import PostgresStore
from perdure.store.postgres.tx_enqueue.tx_enqueue import Place
from tests.postgres_server import PostgresServer
from tests.roles import enqueue_only
from tests.runtime.support import PATIENCE, check_every_job, until
from tests.tx_callers import ASYNC, EVERY, make_orders, names, path, toolkit_url

SOME = ["psycopg", "asyncpg pool", "session psycopg", "session asyncpg", "sqlite3", "aiosqlite", "session aiosqlite"]


@asynccontextmanager
async def app_over(url: str) -> AsyncIterator[App]:
    app = App(url, migrate=True)
    async with app:
        yield app


@pytest.fixture
async def app(file_store_url: str) -> AsyncIterator[App]:
    async with app_over(file_store_url) as app:
        yield app


@pytest.fixture
async def postgres_app(postgres_url: str) -> AsyncIterator[App]:
    async with app_over(postgres_url) as app:
        yield app


@pytest.fixture
async def sqlite_app(tmp_path: Path) -> AsyncIterator[App]:
    async with app_over(f"sqlite:///{tmp_path}/perdure.db") as app:
        yield app


async def refused(app: App, tx: Any, error: type[PerdureError], match: str = ".") -> PerdureError:
    """It is refused in these words, which say what to do, and nothing is stored."""
    with pytest.raises(error, match=match) as caught:
        await app.enqueue("x", tx=tx)
    assert await app.jobs.count() == {}
    assert caught.value.hint
    return caught.value


# -- what is no connection -------------------------------------------------------------------------------------------------


class Elsewhere:
    """A connection of an unknown library."""


async def test_what_is_no_connection(app: App) -> None:
    engine = sa.create_engine("sqlite://")
    for tx in ("sqlite:///x.db", 7, object(), Elsewhere(), engine, Session, app, sqlite3):
        error = await refused(app, tx, UnsupportedTransaction, "tx= cannot be of type ")
        assert "psycopg 3, asyncpg, sqlite3 or aiosqlite" in str(error.hint)
    engine.dispose()
    await refused(app, 7, UnsupportedTransaction, "tx= cannot be of type int: ")
    await refused(app, "x", UnsupportedTransaction, "tx= cannot be of type str: ")


async def test_the_older_psycopg_is_refused_with_the_newer_one(app: App) -> None:
    kind = type("connection", (), {"__module__": "psycopg2.extensions"})
    assert "postgresql+psycopg://" in str((await refused(app, kind(), UnsupportedTransaction)).hint)


async def test_a_pool_is_no_connection(postgres_app: App) -> None:
    async with asyncpg.create_pool(postgres_app.settings["database_url"], min_size=0) as pool:
        await refused(postgres_app, pool, UnsupportedTransaction, "asyncpg.pool.Pool")


async def test_a_connection_that_is_closed(postgres_app: App) -> None:
    url = postgres_app.settings["database_url"]
    connection = await asyncpg.connect(url)
    await connection.close()
    await refused(postgres_app, connection, UnsupportedTransaction, "asyncpg.connection.Connection, and it is closed")
    async with asyncpg.create_pool(url, min_size=0) as pool:
        async with pool.acquire() as lent, lent.transaction():
            pass
        await refused(postgres_app, lent, UnsupportedTransaction, "given back to its pool")


# -- no transaction --------------------------------------------------------------------------------------------------------


async def test_autocommit_on_postgres(postgres_app: App) -> None:
    url = postgres_app.settings["database_url"]
    with psycopg.connect(url, autocommit=True) as c:
        await refused(postgres_app, c, NoTransaction, "no open transaction")
        await refused(postgres_app, c.cursor(), NoTransaction)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as a:
        await refused(postgres_app, a, NoTransaction)
    connection = await asyncpg.connect(url)
    error = await refused(postgres_app, connection, NoTransaction)
    assert "connection.transaction()" in str(error.hint)
    await connection.close()


async def test_autocommit_on_sqlite(sqlite_app: App) -> None:
    file = path(sqlite_app.settings["database_url"])
    with closing(sqlite3.connect(file, isolation_level=None)) as c:
        error = await refused(sqlite_app, c, NoTransaction, "no open transaction")
        assert "BEGIN IMMEDIATE" in str(error.hint)
    async with aiosqlite.connect(file, isolation_level=None) as a:
        await refused(sqlite_app, a, NoTransaction)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has `autocommit` from Python 3.12 on")
async def test_the_newer_way_of_autocommit_on_sqlite(sqlite_app: App) -> None:
    file = path(sqlite_app.settings["database_url"])
    autocommit: Any = {"autocommit": True}
    manual: Any = {"autocommit": False}
    with closing(sqlite3.connect(file, **autocommit)) as c:
        await refused(sqlite_app, c, NoTransaction)
    async with aiosqlite.connect(file, **autocommit) as a:
        await refused(sqlite_app, a, NoTransaction)
    with closing(sqlite3.connect(file, **manual)) as c:
        await sqlite_app.enqueue("x", tx=c)
        c.rollback()
        assert await sqlite_app.jobs.count() == {}
        await sqlite_app.enqueue("x", tx=c)
        c.commit()
    assert await sqlite_app.jobs.count() == {"PENDING": 1}


async def test_autocommit_of_an_engine(app: App) -> None:
    url = app.settings["database_url"]
    driver = "pysqlite" if url.startswith("sqlite") else "psycopg"
    engine = sa.create_engine(toolkit_url(url, driver), isolation_level="AUTOCOMMIT")
    with engine.connect() as c, Session(c) as session:
        for tx in (c, session):
            error = await refused(app, tx, NoTransaction)
            assert error.hint == 'use an engine or connection of SQLAlchemy without isolation_level="AUTOCOMMIT"'
    engine.dispose()


async def test_autocommit_of_an_async_engine_on_sqlite(sqlite_app: App) -> None:
    engine = create_async_engine(
        toolkit_url(sqlite_app.settings["database_url"], "aiosqlite"), isolation_level="AUTOCOMMIT"
    )
    async with engine.connect() as c:
        error = await refused(sqlite_app, c, NoTransaction)
        assert "SQLAlchemy" in str(error.hint)
    await engine.dispose()


async def test_autocommit_of_an_async_engine(postgres_app: App) -> None:
    url = toolkit_url(postgres_app.settings["database_url"], "asyncpg")
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    async with engine.connect() as c:
        error = await refused(postgres_app, c, NoTransaction)
        assert "SQLAlchemy" in str(error.hint)
    await engine.dispose()
    engine = create_async_engine(url.replace("asyncpg", "psycopg"), isolation_level="AUTOCOMMIT")
    async with engine.connect() as c:
        error = await refused(postgres_app, c, NoTransaction)
        assert "SQLAlchemy" in str(error.hint)
    await engine.dispose()


# -- another database ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SOME)
async def test_another_database_of_the_same_make(
    kind: str, request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path
) -> None:
    """The transaction there goes on as if nothing had been said."""
    dialect, opener = EVERY[kind]
    ours = request.getfixturevalue("postgres_url") if dialect == "postgres" else f"sqlite:///{tmp_path}/ours.db"
    theirs = f"sqlite:///{tmp_path}/theirs.db"
    if dialect == "postgres":
        name = f"perdure_test_{os.getpid()}_theirs"
        theirs = postgres.create_database(name, template=request.getfixturevalue("postgres_template"))
    async with app_over(ours) as app, app_over(theirs) as other:
        await make_orders(theirs)
        async with opener(theirs) as caller:
            await caller.order("tea")
            error = await refused(app, caller.tx, OtherDatabase, "but the App's jobs are in")
            assert "theirs" in error.message
            assert "ours" in error.message or dialect == "postgres"
            job = await other.enqueue("x", tx=caller.tx)
            await caller.commit()
        assert await names(theirs) == ["tea"]
        assert (await job.get()).kind == "x"
        assert await app.jobs.count() == {}
    if dialect == "postgres":
        postgres.drop_database(theirs.rpartition("/")[2])


@pytest.mark.parametrize("kind", SOME)
async def test_a_database_of_another_make(kind: str, fresh_store_url: Callable[[str], str]) -> None:
    dialect, opener = EVERY[kind]
    theirs = fresh_store_url(dialect)
    async with app_over(fresh_store_url("sqlite" if dialect == "postgres" else "postgres")) as app:
        await make_orders(theirs)
        async with opener(theirs) as caller:
            await caller.order("tea")
            await refused(app, caller.tx, OtherDatabase, "a connection of .*but the App's jobs are in")
            await caller.commit()
        assert await names(theirs) == ["tea"]


async def test_a_store_in_memory_is_out_of_reach() -> None:
    async with app_over("memory:") as app:
        with closing(sqlite3.connect(":memory:")) as c:
            await refused(app, c, OtherDatabase, "memory")
            assert not c.in_transaction


async def test_memory_and_attached_files_are_elsewhere(sqlite_app: App) -> None:
    with closing(sqlite3.connect(":memory:")) as c:
        c.execute("attach ? as perdure", (path(sqlite_app.settings["database_url"]),))
        await refused(sqlite_app, c, OtherDatabase, "a connection to a database in memory")
        assert not c.in_transaction, "nothing was begun either"


async def test_a_file_by_another_name_is_the_same(sqlite_app: App, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "perdure.db")
    with closing(sqlite3.connect(tmp_path / "link.db")) as c:
        await sqlite_app.enqueue("x", tx=c)
        c.commit()
    assert await sqlite_app.jobs.count() == {"PENDING": 1}


async def test_a_server_that_is_set_up_alike_is_another(postgres_app: App, postgres_template: str) -> None:
    """The same name, perhaps the same number, but another cluster."""
    name = postgres_app.settings["database_url"].rpartition("/")[2]
    with PostgresServer(own=True) as server, psycopg.connect(server.create_database(name)) as c:
        store = await postgres_app.open()
        assert isinstance(store, PostgresStore)
        await refused(postgres_app, c, OtherDatabase)
        here = await store.engine.tx_enqueue.find_place()
        row = c.execute("select oid::text from pg_database where datname = current_database()").fetchone()
        store.engine.tx_enqueue.place = Place(
            name, row[0] if row else "", here.server
        )  # as if the numbers were the same, too
        with pytest.raises(OtherDatabase, match="of another server"):
            await postgres_app.enqueue("x", tx=c)
        assert c.execute("select 1").fetchone() == (1,), "the transaction is as it was"


async def test_who_may_not_ask_for_the_server_goes_by_name_and_number(postgres_app: App) -> None:
    url = postgres_app.settings["database_url"]
    with psycopg.connect(url, autocommit=True) as c:
        c.execute("revoke execute on function pg_control_system() from public")
        for grant in enqueue_only("clerk"):
            c.execute(grant)
        try:
            with c.transaction():
                c.execute("set local role clerk")
                await postgres_app.enqueue("x", tx=c)
            assert await postgres_app.jobs.count() == {"PENDING": 1}
        finally:
            c.execute("drop owned by clerk")
            c.execute("drop role clerk")


async def test_a_database_that_moved_is_found_again(postgres_app: App) -> None:
    """A cluster that was replaced under the App's feet is refused once, then looked at again."""
    store = await postgres_app.open()
    assert isinstance(store, PostgresStore)
    store.engine.tx_enqueue.place = Place("gone", "1", None)
    with psycopg.connect(postgres_app.settings["database_url"]) as c:
        await refused(postgres_app, c, OtherDatabase)
        await postgres_app.enqueue("x", tx=c)
        c.commit()
    assert await postgres_app.jobs.count() == {"PENDING": 1}


# -- the driver's own errors -----------------------------------------------------------------------------------------------


async def test_errors_of_the_connection_are_its_drivers(postgres_app: App) -> None:
    """The caller's handling of its transactions knows them: what to try again, what is over."""
    url = postgres_app.settings["database_url"]
    with psycopg.connect(url) as c:
        with pytest.raises(psycopg.errors.UndefinedTable):
            c.execute("select * from nowhere")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            await postgres_app.enqueue("x", tx=c)
        c.rollback()
        c.read_only = True
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            await postgres_app.enqueue("x", tx=c)
        c.rollback()
    with pytest.raises(psycopg.OperationalError, match="closed"):
        await postgres_app.enqueue("x", tx=c)


async def test_a_snapshot_that_is_too_old_is_refused(postgres_app: App) -> None:
    """A key that was committed after the transaction's snapshot is no guess: the whole transaction must run again."""
    with psycopg.connect(postgres_app.settings["database_url"]) as c:
        c.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        c.execute("select 1")
        done = await postgres_app.enqueue("x", idempotency_key="k")
        with pytest.raises(psycopg.errors.SerializationFailure):
            await postgres_app.enqueue("x", tx=c, idempotency_key="k")
        c.rollback()
        assert (await postgres_app.enqueue("x", tx=c, idempotency_key="k")).id == done.id
    assert await postgres_app.jobs.count() == {"PENDING": 1}


async def test_a_failing_batch_leaves_the_transaction_alive(postgres_app: App) -> None:
    """Several jobs have a savepoint around them: also what the database itself refuses costs no more than them."""
    with psycopg.connect(postgres_app.settings["database_url"]) as c:
        c.execute("set local statement_timeout = '30s'")
        c.execute("alter table perdure.jobs add constraint no_milk check (payload::text <> '\"milk\"')")
        with pytest.raises(psycopg.errors.CheckViolation):
            await postgres_app.enqueue_many([Request("x", "tea"), Request("x", "milk")], tx=c)
        await postgres_app.enqueue("x", "tea", tx=c)
        c.execute("alter table perdure.jobs drop constraint no_milk")
        c.commit()
    assert await postgres_app.jobs.count() == {"PENDING": 1}


async def test_a_locked_file_raises_the_drivers_error(sqlite_app: App) -> None:
    file = path(sqlite_app.settings["database_url"])
    with closing(sqlite3.connect(file, timeout=0)) as c, closing(sqlite3.connect(file, isolation_level=None)) as holder:
        holder.execute("begin immediate")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            await sqlite_app.enqueue("x", tx=c)
        assert not c.in_transaction
        holder.execute("rollback")
        await sqlite_app.enqueue("x", tx=c)
        c.commit()
    assert await sqlite_app.jobs.count() == {"PENDING": 1}


@pytest.mark.parametrize("kind", ASYNC)
async def test_a_cancelled_caller(kind: str, fresh_store_url: Callable[[str], str]) -> None:
    """A call that is cancelled in the middle leaves a transaction that can be rolled back."""
    dialect, opener = EVERY[kind]
    url = fresh_store_url(dialect)
    async with app_over(url) as app:
        await make_orders(url)
        async with opener(url) as caller:
            await caller.order("tea")
            await app.enqueue("x", tx=caller.tx)
            task = asyncio.ensure_future(app.enqueue("x", tx=caller.tx))
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await caller.rollback()
        assert await names(url) == []
        assert await app.jobs.count() == {}


async def test_a_lock_that_needs_this_loop_to_be_released(postgres_app: App) -> None:
    """The caller's blocking connection waits for another transaction, which this very event loop is to commit."""
    url = postgres_app.settings["database_url"]
    with psycopg.connect(url) as blocking:
        other = await asyncpg.connect(url)
        tx = other.transaction()
        await tx.start()
        first = await postgres_app.enqueue("x", tx=other, idempotency_key="k")
        second = asyncio.create_task(postgres_app.enqueue("x", tx=blocking, idempotency_key="k"))
        await until(lambda: waits_for_a_lock(url))
        await tx.commit()
        async with asyncio.timeout(PATIENCE):
            assert (await second).id == first.id
        await other.close()


async def test_a_caller_that_gives_up_waiting_has_its_connection_back(postgres_app: App) -> None:
    url = postgres_app.settings["database_url"]
    with psycopg.connect(url) as blocking, psycopg.connect(url) as holder:
        await postgres_app.enqueue("x", tx=holder, idempotency_key="k")
        waiting = asyncio.create_task(postgres_app.enqueue("x", tx=blocking, idempotency_key="k"))
        await until(lambda: waits_for_a_lock(url))
        waiting.cancel()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        blocking.rollback()
        assert (await postgres_app.enqueue("x", tx=blocking)).created
        blocking.commit()
        holder.rollback()
    assert await postgres_app.jobs.count() == {"PENDING": 1}


async def waits_for_a_lock(url: str) -> bool:
    connection = await asyncpg.connect(url)
    try:
        sql = "select count(*) from pg_locks where not granted"
        return bool(await connection.fetchval(sql))
    finally:
        await connection.close()


async def test_temporary_tables_do_not_stand_in_for_ours(sqlite_app: App) -> None:
    with closing(sqlite3.connect(path(sqlite_app.settings["database_url"]))) as c:
        for name in ("jobs", "clock", "job_events", "job_queue"):
            c.execute(f"create temp table {name} (id, now)")
        c.execute("pragma recursive_triggers = on")
        handle = await sqlite_app.enqueue("x", tx=c, idempotency_key="k")
        assert (await sqlite_app.enqueue("x", tx=c, idempotency_key="k")).id == handle.id
        c.commit()
    await check_every_job(sqlite_app)
    assert (await handle.get()).kind == "x"
