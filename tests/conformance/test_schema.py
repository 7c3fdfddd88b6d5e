"""The schema: made once, by one migrator at a time, never touched when it is newer or was changed."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.model.errors import (
    ForeignDatabase,
    MalformedUrl,
    MigrationChanged,
    PerdureError,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
    StoreError,
    StoreUnreachable,
)
from perdure.model.jobs import JobFilter
from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.shell import Shell, open_shell
from tests.conformance.support import checked_log, enqueue
from tests.postgres_server import PostgresServer


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a database that perdure has never seen."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        name = f"perdure_test_{os.getpid()}_empty"
        yield server.create_database(name)
        server.drop_database(name)
    else:
        yield "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/empty.db"


@pytest.fixture
async def empty(empty_url: str) -> AsyncIterator[Store]:
    store = await open_store(empty_url)
    yield store
    await store.close()


async def test_an_empty_database_says_so(empty: Store) -> None:
    with pytest.raises(SchemaMissing, match="no perdure schema"):
        await empty.check_schema()
    status = await empty.schema_status()
    assert status.current == 0
    assert status.needed == len(status.migrations) > 0
    assert all(m.applied_at is None and m.sql and len(m.checksum) == 64 for m in status.migrations)
    assert status.server
    assert (await empty.schema_status()).current == 0, "looking creates nothing"


async def test_tables_of_somebody_else_are_called_so(empty: Store, empty_url: str) -> None:
    if empty_url == "memory:":
        pytest.skip("nobody else gets in there")
    async with open_shell(empty_url) as shell:
        if shell.postgres:
            await shell.run("create table public.jobs (id integer primary key)")
            with pytest.raises(SchemaMissing, match="no perdure schema"):
                await empty.check_schema()
            await shell.run("create schema perdure")
        await shell.run("create table schema_migrations (version text)")  # as other tools name theirs
        await shell.run("create table orders (id integer primary key)")
        for look in (empty.check_schema, empty.check):
            with pytest.raises(
                ForeignDatabase, match=r"tables \(orders, schema_migrations\), and no perdure"
            ) as refused:
                await look()
            assert "perdure config ls" in str(refused.value.hint)
        await shell.run("drop table schema_migrations")
        await empty.migrate()
        await empty.check_schema()
        assert (await empty.check()).findings == (), "ours may stand beside theirs"


async def test_a_file_that_is_not_ours_is_left_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as connection:
        connection.execute("create table orders (id integer primary key)")
    (tmp_path / "empty.db").touch()
    (tmp_path / "letter.db").write_text("Dear Ann, this is no database, however long it is. " * 50)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name, error in (
        ("theirs", ForeignDatabase),
        ("empty", SchemaMissing),
        ("letter", StoreError),
        ("nowhere", StoreUnreachable),
    ):
        with pytest.raises(error):
            await open_store(f"sqlite:///{tmp_path}/{name}.db", creates=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    for number in (1, 2):
        store = await open_store(f"sqlite:///{tmp_path}/ours.db", creates=number == 1)
        await store.migrate()
        await enqueue(store)
        await store.close()


async def test_migrating_applies_everything_once(empty: Store) -> None:
    applied = await empty.migrate()
    assert [m.number for m in applied] == list(range(1, len(applied) + 1))
    await empty.check_schema()
    status = await empty.schema_status()
    assert status.current == status.needed == len(applied)
    assert all(m.applied_at is not None for m in status.migrations)
    job_id = await enqueue(empty)
    assert await empty.migrate() == []
    await checked_log(empty, job_id)


async def test_concurrent_migrators_take_turns(empty_url: str) -> None:
    if empty_url == "memory:":
        pytest.skip("a database in memory has one user")
    stores = [await open_store(empty_url) for _ in range(4)]
    done = await asyncio.gather(*(store.migrate() for store in stores))
    assert sorted(len(applied) for applied in done) == [0, 0, 0, (await stores[0].schema_status()).needed]
    for store in stores:
        await store.check_schema()
        await store.close()


async def test_a_migration_that_fails_leaves_nothing_of_itself(empty: Store, empty_url: str) -> None:
    if empty_url == "memory:":
        pytest.skip("nobody else is in a database in memory")
    async with open_shell(empty_url) as shell:
        if shell.postgres:
            await shell.run("create schema perdure")
        await shell.run("create table job_waits (in_the_way int)")
        with pytest.raises(PerdureError):
            await empty.migrate()
        assert (await empty.schema_status()).current == 0
        with pytest.raises(SchemaMissing):
            await empty.check_schema()
        await shell.run("drop table job_waits")
    assert len(await empty.migrate()) > 0
    await checked_log(empty, await enqueue(empty))


async def test_a_newer_schema_is_not_touched(file_store: Store, shell: Shell) -> None:
    await shell.run(
        "insert into schema_migrations (number, name, checksum, applied_at) "
        "select 99, 'future', 'x', applied_at from schema_migrations where number = 1"
    )
    for call in (file_store.check_schema, file_store.migrate):
        with pytest.raises(SchemaTooNew, match="99"):
            await call()
    status = await file_store.schema_status()
    assert status.current == 99 > status.needed


async def test_a_changed_migration_is_not_built_upon(file_store: Store, shell: Shell) -> None:
    await shell.run("update schema_migrations set checksum = 'edited' where number = 1")
    for call in (file_store.check_schema, file_store.migrate):
        with pytest.raises(MigrationChanged, match="1"):
            await call()
    assert (await file_store.schema_status()).current == (await file_store.schema_status()).needed


async def test_an_older_schema_says_what_is_missing(file_store: Store, shell: Shell) -> None:
    needed = (await file_store.schema_status()).needed
    await shell.run(f"delete from schema_migrations where number = {needed}")
    with pytest.raises(SchemaOutdated if needed > 1 else SchemaMissing):
        await file_store.check_schema()
    assert (await file_store.schema_status()).current == needed - 1


async def test_database_time_is_utc_and_moves_on(store: Store) -> None:
    first, second = await store.now(), await store.now()
    assert first.tzinfo is not None
    assert first.utcoffset() == second.utcoffset()
    assert first <= second


@pytest.mark.parametrize(
    "url", ["", "jobs.db", "mysql://x/y", "sqlite:", "sqlite://", "sqlite:///", "memory:x", "postgres:"]
)
async def test_a_malformed_url_is_explained(url: str) -> None:
    with pytest.raises(MalformedUrl) as refused:
        await open_store(url)
    assert refused.value.hint is not None
    assert "postgresql://" in refused.value.hint


async def test_a_database_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/no/such/directory/x.db", "postgresql://ann:sesame@127.0.0.1:1/none"):
        with pytest.raises(StoreUnreachable) as refused:
            await open_store(url)
        assert "sesame" not in str(refused.value) + str(refused.value.hint)


async def open_and_check(url: str) -> None:
    store = await open_store(url)
    try:
        await store.check_schema()
    finally:
        await store.close()


async def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear Ann, this is not a database. " * 100)
    with pytest.raises(StoreError, match="is not a SQLite database") as refused:
        await open_and_check(f"sqlite:///{file}")
    assert refused.value.code == "store-error", "trying again would not help"
    assert file.read_text().startswith("Dear Ann")


async def test_a_damaged_file_is_called_so(tmp_path: Path) -> None:
    file = tmp_path / "my jobs.db"
    store = await open_store(f"sqlite:///{file}")
    await store.migrate()
    for number in range(200):
        await enqueue(store, kind=f"k{number}")
    await store.close()
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(StoreError, match="is damaged") as refused:
        await open_and_check(f"sqlite:///{file}")
    assert refused.value.code == "store-error"
    assert refused.value.hint is not None
    assert f"sqlite3 '{file}' \"pragma integrity_check\"" in refused.value.hint
    assert "restore a backup" in refused.value.hint


async def test_damage_that_is_met_later_is_called_so(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    store = await open_store(f"sqlite:///{file}")
    await store.migrate()
    await enqueue(store)
    await store.close()
    with closing(sqlite3.connect(file)) as connection:
        [(root,)] = connection.execute("select rootpage from sqlite_schema where name = 'jobs'")
    with file.open("r+b") as pages:
        pages.seek((root - 1) * 4096)
        pages.write(b"\xff" * 4096)
    store = await open_store(f"sqlite:///{file}")
    try:
        for asked in (store.list_jobs(JobFilter()), enqueue(store)):
            with pytest.raises(StoreError, match="is damaged") as refused:
                await asked
            assert refused.value.code == "store-error"
    finally:
        await store.close()


async def test_every_kind_is_named_once_of_all_tenants(file_store: Store, neighbour: Store) -> None:
    assert await file_store.kinds() == []
    for store, kind in ((file_store, "b"), (file_store, "a.b"), (neighbour, "z"), (neighbour, "b"), (file_store, "b")):
        await enqueue(store, kind=kind)
    for store in (file_store, neighbour):
        kinds = await store.kinds()
        assert sorted(kinds) == ["a.b", "b", "z"]


async def test_a_store_in_memory_names_its_kinds(store: Store) -> None:
    await enqueue(store, kind="one of these")
    await enqueue(store, kind="ein ä")
    assert {"one of these", "ein ä"} <= set(await store.kinds())


async def test_a_migration_that_meets_somebody_elses_table_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("create table schema_migrations (version text primary key)")  # as other tools name theirs
    store = await open_store(f"sqlite:///{path}")
    try:
        for _ in range(2):
            with pytest.raises(PerdureError):
                await store.migrate()
    finally:
        await store.close()
    with closing(sqlite3.connect(path)) as theirs:
        tables = theirs.execute("select name from sqlite_master where type in ('table', 'view')").fetchall()
    assert tables == [("schema_migrations",)]
