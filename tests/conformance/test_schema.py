"""The schema: made once, by one migrator at a time, never touched when it is newer or was changed."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
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
from perdure.store.protocol import Migration, Store
from perdure.store.statements import load_migrations
from tests.conformance.sql_shell import Shell, open_shell
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
        await empty.schema.check_schema()
    status = await empty.schema.schema_status()
    assert status.current == 0
    assert status.needed == len(status.migrations) > 0
    assert all(m.applied_at is None and m.sql and len(m.checksum) == 64 for m in status.migrations)
    assert status.server
    assert (await empty.schema.schema_status()).current == 0, "looking creates nothing"


async def test_tables_of_another_program_are_named(empty: Store, empty_url: str) -> None:
    if empty_url == "memory:":
        pytest.skip("no other process can open it")
    async with open_shell(empty_url) as shell:
        if shell.postgres:
            await shell.run("create table public.jobs (id integer primary key)")
            with pytest.raises(SchemaMissing, match="no perdure schema"):
                await empty.schema.check_schema()
            assert await empty.schema.other_tables() == ["public.jobs"]
            await shell.run("create schema perdure")
        await shell.run("create table schema_migrations (version text, checksum text)")  # as other tools name theirs
        await shell.run("create table orders (id integer primary key)")
        for look in (empty.schema.check_schema, empty.checks.check, empty.schema.schema_status, empty.schema.migrate):
            with pytest.raises(ForeignDatabase, match=r"tables \(orders, schema_migrations\), and no ") as refused:
                await look()
            hint = str(refused.value.hint)
            assert "perdure config ls" in hint
            assert ("alter schema perdure rename to" if shell.postgres else "rename what is in the way") in hint
        await shell.run("drop table schema_migrations")
        if shell.postgres:
            await shell.run("alter schema perdure rename to theirs")
        await empty.schema.migrate()
        await empty.schema.check_schema()
        assert (await empty.checks.check()).findings == (), "perdure's tables may be in the same file"
        assert await empty.schema.other_tables() == (["public.jobs", "theirs.orders"] if shell.postgres else ["orders"])
        if shell.postgres:
            await shell.run("create table perdure.more (id integer)")
            assert "perdure.more" in await empty.schema.other_tables()


async def test_a_file_that_is_not_ours_is_left_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as connection:
        connection.execute("create table orders (id integer primary key)")
    (tmp_path / "empty.db").touch()
    (tmp_path / "letter.db").write_text("Dear Ann, this is no database, however long it is. " * 50)
    before = contents(tmp_path)
    for name, error in (
        ("theirs", ForeignDatabase),
        ("empty", SchemaMissing),
        ("letter", StoreError),
        ("nowhere", StoreUnreachable),
    ):
        with pytest.raises(error):
            await open_store(f"sqlite:///{tmp_path}/{name}.db", creates=False)
    assert contents(tmp_path) == before
    for number in (1, 2):
        store = await open_store(f"sqlite:///{tmp_path}/ours.db", creates=number == 1)
        await store.schema.migrate()
        await enqueue(store)
        await store.close()


def contents(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir()}


@pytest.mark.parametrize("journal", ["delete", "wal", "wal, in use"])
@pytest.mark.parametrize("name", ["orders", "sqlite3_orders", "Jobs"])
async def test_tables_are_not_added_to_another_programs_file_unasked(tmp_path: Path, name: str, journal: str) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as theirs:
        theirs.execute(f"pragma journal_mode = {journal.partition(',')[0]}")
        theirs.execute(f"create table {name} (id integer primary key)")
        if journal != "wal, in use":
            theirs.close()
        before = contents(tmp_path)
        taken = name == "Jobs"
        with pytest.raises(ForeignDatabase, match=rf"it has tables \({name}\), and no perdure schema") as refused:
            await open_store(f"sqlite:///{path}", allow_other_tables=False)
        assert ("perdure db migrate, or App(..., migrate=True)" in str(refused.value.hint)) is not taken
        if taken:
            with pytest.raises(ForeignDatabase, match="would need these names: Jobs\n"):
                await open_store(f"sqlite:///{path}")
        after = contents(tmp_path)
        for marks in (before, after):
            marks.pop("theirs.db-shm", None)  # who reads what
        assert after == before
    if taken:
        return
    store = await open_store(f"sqlite:///{path}")
    await store.schema.migrate()
    await checked_log(store, await enqueue(store))
    await store.close()
    store = await open_store(f"sqlite:///{path}", allow_other_tables=False)
    assert await store.schema.other_tables() == [name]
    await store.close()


async def test_what_another_program_left_in_the_wal_stays_there(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for place in (here, there):
        place.mkdir()
    with closing(sqlite3.connect(here / "theirs.db", isolation_level=None)) as theirs:
        theirs.execute("pragma journal_mode = wal")
        theirs.execute("create table orders (id integer primary key)")
        for name in ("theirs.db", "theirs.db-wal"):  # as a crash leaves it
            shutil.copy(here / name, there)
    (tmp_path / "link.db").symlink_to(there / "theirs.db")
    before = contents(there)
    for path in (tmp_path / "link.db", there / "theirs.db"):
        with pytest.raises(ForeignDatabase, match=r"tables \(orders\)"):
            await open_store(f"sqlite:///{path}", allow_other_tables=False)
        after = contents(there)
        after.pop("theirs.db-shm", None)
        assert after == before


async def test_another_program_that_writes_in_between_is_seen(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    store = await open_store(url, allow_other_tables=False)
    async with open_shell(url) as shell:
        await shell.run("create table orders (id integer)")
        with pytest.raises(ForeignDatabase):
            await store.schema.migrate(allow_other_tables=False)
        assert len(await shell.run("select name from sqlite_master")) == 1
    await store.schema.migrate()
    await store.close()


@pytest.mark.parametrize("size", [1, 2, 15, 16, 20, 99])
@pytest.mark.parametrize(("creates", "allow_other_tables"), [(True, True), (True, False), (False, False)])
async def test_a_few_bytes_are_no_database(tmp_path: Path, size: int, creates: bool, allow_other_tables: bool) -> None:
    (tmp_path / "note").write_bytes(b"x" * size)
    with pytest.raises(StoreError, match="is not a SQLite database"):
        await open_store(f"sqlite:///{tmp_path}/note", creates=creates, allow_other_tables=allow_other_tables)
    assert contents(tmp_path) == {"note": b"x" * size}


async def test_a_schema_that_is_half_made_is_not_taken_for_another_programs(empty_url: str) -> None:
    if empty_url == "memory:":
        pytest.skip("a database in memory has one user")
    store = await open_store(empty_url)
    status = await store.schema.schema_status()
    async with open_shell(empty_url) as shell:
        await shell.run("begin")
        if shell.postgres:
            await shell.run("create schema perdure")
        await shell.run("create table schema_migrations (number int, name text, checksum text, applied_at int)")
        await shell.run("create table jobs (id int)")
        second = await open_store(empty_url, allow_other_tables=False)
        assert await second.schema.schema_status() == status
        assert await second.schema.other_tables() == []
        with pytest.raises(SchemaMissing) as refused:
            await second.schema.check_schema()
        assert type(refused.value) is SchemaMissing
        migrating = asyncio.ensure_future(second.schema.migrate(allow_other_tables=False))
        await asyncio.sleep(0.1)
        await shell.run("rollback")
    assert len(await migrating) == status.needed
    for each in (store, second):
        await each.schema.check_schema()
        await each.close()


async def test_migrating_applies_everything_once(empty: Store) -> None:
    applied = await empty.schema.migrate()
    assert [m.number for m in applied] == list(range(1, len(applied) + 1))
    await empty.schema.check_schema()
    status = await empty.schema.schema_status()
    assert status.current == status.needed == len(applied)
    assert all(m.applied_at is not None for m in status.migrations)
    job_id = await enqueue(empty)
    assert await empty.schema.migrate() == []
    await checked_log(empty, job_id)


async def test_concurrent_migrators_take_turns(empty_url: str) -> None:
    if empty_url == "memory:":
        pytest.skip("a database in memory has one user")
    stores = [await open_store(empty_url) for _ in range(4)]
    done = await asyncio.gather(*(store.schema.migrate() for store in stores))
    numbers = sorted(migration.number for applied in done for migration in applied)
    assert numbers == [*range(1, (await stores[0].schema.schema_status()).needed + 1)], "each was applied once"
    for store in stores:
        await store.schema.check_schema()
        await store.close()


async def test_a_migration_that_fails_leaves_nothing_of_itself(
    empty: Store, empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(package: str) -> list[Migration]:
        [first, *_] = load_migrations(package)
        return [replace(first, sql=first.sql + "\nselect * from what_is_not_there;")]

    with monkeypatch.context() as patched:
        patched.setattr("perdure.store.postgres.schema.schema.load_migrations", broken)
        patched.setattr("perdure.store.sqlite.schema.schema._MIGRATIONS", broken("perdure.store.sqlite"))
        with pytest.raises(PerdureError, match="what_is_not_there"):
            await empty.schema.migrate()
        assert (await empty.schema.schema_status()).current == 0
    with pytest.raises(SchemaMissing) as refused:
        await empty.schema.check_schema()
    assert type(refused.value) is SchemaMissing
    assert len(await empty.schema.migrate()) > 0
    await checked_log(empty, await enqueue(empty))


async def test_a_newer_schema_is_not_touched(file_store: Store, shell: Shell) -> None:
    await shell.run(
        "insert into schema_migrations (number, name, checksum, applied_at) "
        "select 99, 'future', 'x', applied_at from schema_migrations where number = 1"
    )
    for call in (file_store.schema.check_schema, file_store.schema.migrate):
        with pytest.raises(SchemaTooNew, match="99"):
            await call()
    status = await file_store.schema.schema_status()
    assert status.current == 99 > status.needed


async def test_a_changed_migration_is_not_built_upon(file_store: Store, shell: Shell) -> None:
    await shell.run("update schema_migrations set checksum = 'edited' where number = 1")
    for call in (file_store.schema.check_schema, file_store.schema.migrate):
        with pytest.raises(MigrationChanged, match="1"):
            await call()
    assert (await file_store.schema.schema_status()).current == (await file_store.schema.schema_status()).needed


async def test_an_older_schema_says_what_is_missing(file_store: Store, shell: Shell) -> None:
    needed = (await file_store.schema.schema_status()).needed
    await shell.run(f"delete from schema_migrations where number = {needed}")
    with pytest.raises(SchemaOutdated if needed > 1 else SchemaMissing):
        await file_store.schema.check_schema()
    if needed > 1:
        assert (await file_store.schema.schema_status()).current == needed - 1


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
        await store.schema.check_schema()
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
    await store.schema.migrate()
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
    await store.schema.migrate()
    await enqueue(store)
    await store.close()
    with closing(sqlite3.connect(file)) as connection:
        [(root,)] = connection.execute("select rootpage from sqlite_schema where name = 'jobs'")
    with file.open("r+b") as pages:
        pages.seek((root - 1) * 4096)
        pages.write(b"\xff" * 4096)
    store = await open_store(f"sqlite:///{file}")
    try:
        for asked in (store.jobs.list_jobs(JobFilter()), enqueue(store)):
            with pytest.raises(StoreError, match="is damaged") as refused:
                await asked
            assert refused.value.code == "store-error"
    finally:
        await store.close()


async def test_every_kind_is_named_once_of_all_tenants(file_store: Store, neighbour: Store) -> None:
    assert await file_store.schema.kinds() == []
    for store, kind in ((file_store, "b"), (file_store, "a.b"), (neighbour, "z"), (neighbour, "b"), (file_store, "b")):
        await enqueue(store, kind=kind)
    for store in (file_store, neighbour):
        kinds = await store.schema.kinds()
        assert sorted(kinds) == ["a.b", "b", "z"]


async def test_a_store_in_memory_names_its_kinds(store: Store) -> None:
    await enqueue(store, kind="one of these")
    await enqueue(store, kind="ein ä")
    assert {"one of these", "ein ä"} <= set(await store.schema.kinds())


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        (
            "create table schema_migrations (version text primary key)",
            "schema_migrations",
        ),  # as other tools name theirs
        ("create view job_waits as select 1", "job_waits"),
        ("create index Jobs_Kind on orders (id)", "Jobs_Kind"),
    ],
)
async def test_a_migration_that_meets_another_programs_name_leaves_nothing(
    tmp_path: Path, statement: str, named: str
) -> None:
    path = tmp_path / "theirs.db"
    store = await open_store(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("create table orders (id integer)")
        theirs.execute(statement)
        theirs.commit()
        before = theirs.execute("select * from sqlite_master").fetchall()
        for look in (store.schema.migrate, store.schema.schema_status, store.schema.check_schema):
            with pytest.raises(ForeignDatabase, match=f"would need these names: {named}\n"):
                await look()
        await store.close()
        assert theirs.execute("select * from sqlite_master").fetchall() == before


async def test_tables_and_columns_say_what_they_are(postgres_url: str) -> None:
    """For the people who look at them in psql: the design document has a comment on each."""
    store = await open_store(postgres_url)
    await store.schema.migrate()
    await store.close()
    async with open_shell(postgres_url) as shell:
        tables = await shell.run(
            "select relname as name, obj_description(oid, 'pg_class') as says from pg_class "
            "where relnamespace = 'perdure'::regnamespace and relkind in ('r', 'v') and relname <> 'schema_migrations'"
        )
        columns = await shell.run(
            "select c.relname || '.' || a.attname as name, col_description(c.oid, a.attnum) as says from pg_class c "
            "join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped "
            "where c.relnamespace = 'perdure'::regnamespace and c.relkind = 'r' and c.relname <> 'schema_migrations'"
        )
    assert [row["name"] for row in tables if not row["says"]] == []
    assert [row["name"] for row in columns if not row["says"]] == []
