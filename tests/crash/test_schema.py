"""Migrations that are killed half-way, and workers that are older than the database."""

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from perdure.chaos.processes import TIMEOUT
from perdure.store.open import open_store
from perdure.store.statements import load_migrations
from tests.conformance.sql_shell import open_shell
from tests.crash.apps import make_app
from tests.crash.invariants import check
from tests.crash.processes import ROOT, Crew, ForkServers, all_ended
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.crash

_numbers = itertools.count(1)
EXTRA = (
    "create table {0}extra_2 (n integer);\ncreate table {0}extra_2b (n integer);",
    "create table {0}extra_3 (n integer);",
)

REAL = len(load_migrations("perdure.store.sqlite"))
"""Migrations that perdure ships."""


@pytest.fixture(params=["sqlite", "postgres"])
def bare_crew(request: pytest.FixtureRequest, servers: ForkServers, tmp_path: Path) -> Iterator[Crew]:
    """Processes over a database without any schema."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            url = f"sqlite:///{tmp_path}/bare.db"
        else:
            postgres: PostgresServer = request.getfixturevalue("postgres")
            name = f"perdure_test_bare_{os.getpid()}_{next(_numbers)}"
            url = postgres.create_database(name)
            stack.callback(postgres.drop_database, name)
        yield stack.enter_context(Crew(servers, url, tmp_path / "crew"))


@pytest.mark.parametrize(
    ("kill_at", "done"),
    [
        ("inside migration 1", 0),
        ("after migration 1", 1),
        (f"inside migration {REAL + 1}", REAL),
        (f"after migration {REAL + 1}", REAL + 1),
        (f"after migration {REAL + 2}", REAL + 2),
    ],
)
async def test_a_killed_migrator_leaves_a_schema_that_migrates(bare_crew: Crew, kill_at: str, done: int) -> None:
    crew = bare_crew
    schema = "" if crew.url.startswith("sqlite") else "perdure."
    extra = tuple(sql.format(schema) for sql in EXTRA)
    killed = crew.start(role="migrator", kill_at=kill_at, extra_migrations=extra)
    assert await killed.ended() == -9, killed.log
    store = await open_store(crew.url)
    try:
        applied = (await store.schema.schema_status()).migrations
        assert [m.number for m in applied if m.applied_at] == [*range(1, done + 1)]
    finally:
        await store.close()

    second = [crew.start(role="migrator", extra_migrations=extra) for _ in range(2)]
    for child in second:
        assert await child.ended() == 0, child.log
    assert sorted(map(int, crew.lines("applied"))) == [*range(done + 1, REAL + 3)]
    worker = crew.start(extra_migrations=extra)
    await crew.ready(worker)
    async with open_shell(crew.url) as shell:
        for table in ("extra_2", "extra_2b", "extra_3"):
            assert await shell.run(f"select * from {table}") == []


async def test_an_old_worker_refuses_a_newer_schema(crew: Crew) -> None:
    async with make_app(crew.url) as app:
        job = await app.enqueue("count", 1)
    async with open_shell(crew.url) as shell:
        moment = "now()" if shell.postgres else "0"
        await shell.run(f"insert into schema_migrations values (9999, 'from_the_future', 'x', {moment})")
    command = [sys.executable, "-m", "perdure", "worker", "start", "--app", "tests.crash.apps:app"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PERDURE_DATABASE_URL": crew.url}
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=crew.place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 1
    first = done.stderr.splitlines()[0]
    assert first.startswith("error: ")
    assert "schema version 9999, newer than" in first
    assert "Traceback" not in done.stderr
    snapshot = await check(crew.url, [job.id], by_fsck=False)
    assert snapshot.jobs[job.id]["status"] == "PENDING"
    async with open_shell(crew.url) as shell:
        await shell.run("delete from schema_migrations where number = 9999")
    worker = crew.start()
    async with make_app(crew.url) as app:
        await all_ended(app)
    await crew.dismiss(worker)
