"""Databases of other programs: every command says so, and does not change them unless it is asked to add perdure's tables."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import asyncpg
import pytest

from perdure import App
from perdure.model.errors import ForeignDatabase
from perdure.sync import Client
from tests.cli.conftest import Perdure, spawned
from tests.postgres_server import PostgresServer, run_apart

READING = (
    ("jobs", "ls"),
    ("jobs", "get", "43149ff1"),
    ("jobs", "count"),
    ("jobs", "export", "--all"),
    ("worker", "status"),
    ("approvals", "ls"),
    ("db", "status"),
    ("db", "prune", "--older-than", "1d", "--dry-run"),
    ("fsck", "--fix"),
)
WRITING = (
    ("jobs", "start", "x"),
    ("worker", "start", "--app", "agents:app", "--once"),
    ("dev", "--no-jobs"),
)
URL = "sqlite:///users.db"


def made(statement: str = "create table users (name text)") -> bytes:
    """The file users.db, with the tables of another program."""
    with closing(sqlite3.connect("users.db")) as connection:
        connection.execute(statement)
    return Path("users.db").read_bytes()


@pytest.fixture
def theirs(postgres: PostgresServer) -> Iterator[str]:
    """A PostgreSQL database of another program, with a schema of perdure's name."""
    name = "perdure_doors_theirs"
    postgres.drop_database(name)
    url = postgres.create_database(name)
    run_apart(asked(url, "create schema perdure; create table perdure.jobs (a int)"))
    yield url
    postgres.drop_database(name)


async def asked(url: str, sql: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
        return await connection.fetch(
            "select oid::regclass::text from pg_class where relnamespace = to_regnamespace('perdure')"
        )
    finally:
        await connection.close()


class TestSqlite:
    """A file with tables of others."""

    @pytest.mark.parametrize("args", [*READING, *WRITING], ids=lambda args: " ".join(args[:2]))
    def test_it_is_refused_and_left_as_it_is(self, perdure: Perdure, place: Path, args: tuple[str, ...]) -> None:
        before = made()
        done = perdure(*args, "--db", URL, code=1)
        assert "users.db is not perdure's: it has tables (users), and no perdure schema" in done.err
        assert "to keep perdure's tables in the same file: perdure db migrate, or App(..., migrate=True)" in done.err
        assert done.err.rstrip().endswith("[perdure help foreign-database]")
        assert done.out == ""
        assert Path("users.db").read_bytes() == before
        assert [path.name for path in place.glob("users*")] == ["users.db"]

    def test_the_doctor_says_so(self, perdure: Perdure, place: Path) -> None:
        before = made()
        done = perdure("doctor", "--db", URL, code=1)
        assert "✕ database" in done.out
        assert "is not perdure's: it has tables (users)" in " ".join(done.out.split())
        assert Path("users.db").read_bytes() == before
        assert [path.name for path in place.glob("users*")] == ["users.db"]

    def test_migrating_moves_in(self, perdure: Perdure) -> None:
        made()
        assert "applied 0001 core" in perdure("db", "migrate", "--db", URL).out
        id = perdure("jobs", "start", "x", "--db", URL, "-o", "id").out
        assert perdure("jobs", "ls", "--db", URL, "-o", "id").out == id
        with closing(sqlite3.connect("users.db")) as connection:
            assert connection.execute("select * from users").fetchall() == []

    @pytest.mark.parametrize("args", [("db", "migrate"), ("jobs", "ls"), ("db", "status")])
    def test_a_name_that_is_taken(self, perdure: Perdure, place: Path, args: tuple[str, ...]) -> None:
        before = made("create table jobs (a int)")
        done = perdure(*args, "--db", URL, code=1)
        assert "perdure's own would need these names: jobs" in done.err
        assert "give perdure a file of its own, or rename what is in the way" in done.err
        assert "[perdure help foreign-database]" in done.err
        assert Path("users.db").read_bytes() == before
        assert [path.name for path in place.glob("users*")] == ["users.db"]

    @pytest.mark.parametrize("args", [*READING, *WRITING, ("db", "migrate")], ids=lambda args: " ".join(args[:2]))
    def test_a_file_of_one_byte(self, perdure: Perdure, place: Path, args: tuple[str, ...]) -> None:
        Path("users.db").write_bytes(b"x")
        assert "users.db is not a SQLite database" in perdure(*args, "--db", URL, code=1).err
        assert Path("users.db").read_bytes() == b"x"
        assert [path.name for path in place.glob("users*")] == ["users.db"]

    @pytest.mark.parametrize("migrate", [None, False])
    async def test_an_app_refuses_it(self, place: Path, migrate: bool | None) -> None:
        before = made()
        app = App(URL, migrate=migrate)
        for call in (app.jobs.list, app.jobs.count, app.database.schema_status, app.open):
            with pytest.raises(ForeignDatabase, match=r"tables \(users\)"):
                await call()
        with pytest.raises(ForeignDatabase), Client(URL) as client:
            client.enqueue("x", elsewhere=True)
        assert Path("users.db").read_bytes() == before
        assert [path.name for path in place.glob("users*")] == ["users.db"]
        assert len(await app.database.migrate()) > 0, "which was asked for"
        assert await app.jobs.count() == {}
        await app.close()

    async def test_an_app_that_migrates_moves_in(self) -> None:
        made()
        async with App(URL, migrate=True) as app:
            with closing(sqlite3.connect("users.db")) as connection, connection:
                connection.execute("insert into users values ('ann')")
                job = await app.enqueue("greet", "ann", tx=connection, elsewhere=True)
            assert (await job.get()).payload == "ann"
        async with App(URL) as app:
            assert await app.jobs.count() == {"PENDING": 1}

    def test_two_at_once_on_a_file_that_is_not_there(self, perdure: Perdure) -> None:
        with ExitStack() as stack:
            running = [stack.enter_context(spawned("jobs", "start", "x", "--db", "sqlite:///new.db")) for _ in range(4)]
            for each in running:
                said = each.communicate(timeout=60)
                assert each.returncode == 0, said
        assert perdure("jobs", "count", "--db", "sqlite:///new.db", "--json").json == {"PENDING": 4}


class TestPostgres:
    """A schema `perdure` of another program."""

    @pytest.mark.parametrize("args", [*READING, *WRITING, ("db", "migrate")], ids=lambda args: " ".join(args[:2]))
    def test_it_is_in_the_way(self, perdure: Perdure, theirs: str, args: tuple[str, ...]) -> None:
        done = perdure(*args, "--db", theirs, code=1)
        assert "the schema perdure of PostgreSQL database 'perdure_doors_theirs' at" in done.err
        assert "is not perdure's: it has tables (jobs), and no migration of perdure's" in done.err
        assert "use another database, or rename that schema: alter schema perdure rename to ..." in done.err
        assert done.err.rstrip().endswith("[perdure help foreign-database]")
        assert done.out == ""
        assert [list(row) for row in run_apart(asked(theirs, "select 1"))] == [["perdure.jobs"]]

    def test_the_doctor_says_so(self, perdure: Perdure, theirs: str) -> None:
        page = " ".join(perdure("doctor", "--db", theirs, code=1).out.split())
        assert "✕ database the schema perdure of PostgreSQL database" in page
        assert "alter schema perdure rename to ..." in page

    def test_renamed_it_is_not(self, perdure: Perdure, theirs: str) -> None:
        run_apart(asked(theirs, "alter schema perdure rename to theirs"))
        assert "applied 0001 core" in perdure("db", "migrate", "--db", theirs).out
        assert "no jobs yet" in perdure("jobs", "ls", "--db", theirs).err

    @pytest.mark.parametrize("migrate", [None, True, False])
    async def test_an_app_refuses_it(self, theirs: str, migrate: bool | None) -> None:
        app = App(theirs, migrate=migrate)
        for call in (app.jobs.list, app.database.migrate, app.database.schema_status, app.open):
            with pytest.raises(ForeignDatabase, match=r"tables \(jobs\)"):
                await call()
        await app.close()


class TestChaos:
    """chaos, in a database of another program."""

    ARGS = ("chaos", "--kills", "2", "--workers", "1")

    def test_a_file_of_another_program(self, perdure: Perdure, place: Path) -> None:
        before = made()
        done = perdure(*self.ARGS, "--url", URL, code=5)
        assert "it has tables (users), and no perdure schema. Nothing was changed" in done.err
        assert "--allow-real-jobs" in done.err
        assert done.err.rstrip().endswith("[perdure help real-jobs]")
        assert Path("users.db").read_bytes() == before
        assert [path.name for path in place.glob("users*")] == ["users.db"]
        assert perdure(*self.ARGS, "--url", URL, "--allow-real-jobs", "--json").json["ok"] is True

    def test_tables_in_the_same_file(self, perdure: Perdure) -> None:
        perdure("db", "migrate", "--db", URL)
        made()
        done = perdure(*self.ARGS, "--url", URL, code=5)
        assert "this database holds tables that are not perdure's: users. Nothing was changed" in done.err

    def test_a_server_of_another_program(self, perdure: Perdure, postgres: PostgresServer) -> None:
        name = "perdure_doors_shared"
        postgres.drop_database(name)
        url = postgres.create_database(name)
        try:
            run_apart(asked(url, "create table users (name text); create schema shop; create view shop.v as select 1"))
            done = perdure(*self.ARGS, "--url", url, code=5)
            says = "this database holds tables that are not perdure's: public.users, shop.v. Nothing was changed"
            assert says in done.err
            assert done.err.rstrip().endswith("[perdure help real-jobs]")
            assert perdure("db", "status", "--db", url, "--json", code=1).json["verdict"] == "missing"
            facts = perdure(*self.ARGS, "--url", url, "--allow-real-jobs", "--restart-command", "false", "--json").json
            assert facts["ok"] is True
            assert "the server was not restarted: the database holds jobs or tables of others" in facts["notes"]
        finally:
            postgres.drop_database(name)

    def test_a_schema_of_another_program(self, perdure: Perdure, theirs: str) -> None:
        for more in ((), ("--allow-real-jobs",)):
            assert "[perdure help foreign-database]" in perdure(*self.ARGS, "--url", theirs, *more, code=1).err
