"""A database that the first migration made, with jobs in every status, under the schema of today."""

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import App, JobContext, Status
from perdure.store.open import open_store
from perdure.store.statements import load_migrations
from tests.conformance.healthy_jobs import fsck
from tests.conformance.sql_shell import open_shell
from tests.postgres_server import PostgresServer

FROZEN = {
    "perdure.store.postgres": "5530e9f597a5ee70a1a9dad3465898a77b8b3f5b2c228684a5a5a5f522baaaa2",
    "perdure.store.sqlite": "93a877ea3c2c91495bb9149db427f8ec47eff5e81e2fc28b9744955b409c5273",
}
"""The first migration as databases have it: a later one changes what it made."""

PATHS: dict[Status, tuple[str, ...]] = {
    Status.PENDING: (),
    Status.RUNNING: ("RUNNING",),
    Status.RETRY: ("RUNNING", "RETRY"),
    Status.PARKED: ("RUNNING", "PARKED"),
    Status.WAITING: ("RUNNING", "WAITING"),
    Status.WAITING_FOR_APPROVAL: ("RUNNING", "WAITING_FOR_APPROVAL"),
    Status.COMPLETED: ("RUNNING", "COMPLETED"),
    Status.FAILED: ("RUNNING", "FAILED"),
    Status.CANCELLED: ("CANCELLED",),
    Status.DEADLETTER: ("RUNNING", "DEADLETTER"),
}
"""How SQL brings a job into each status."""


@pytest.fixture(params=["sqlite", "postgres"])
async def old_url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    """A database that only the first migration was applied to."""
    server: PostgresServer | None = None
    name = f"perdure_test_{os.getpid()}_old"
    if request.param == "postgres":
        server = request.getfixturevalue("postgres")
        url = server.create_database(name)
    else:
        url = f"sqlite:///{tmp_path}/old.db"
    with monkeypatch.context() as patched:
        for dialect in ("postgres", "sqlite"):
            module = f"perdure.store.{dialect}.schema.schema"
            patched.setattr(f"{module}.load_migrations", lambda package: load_migrations(package)[:1])
        store = await open_store(url)
        await store.schema.migrate()
        await store.close()
    yield url
    if server is not None:
        server.drop_database(name)


@pytest.mark.parametrize("package", FROZEN)
def test_the_first_migration_does_not_change(package: str) -> None:
    text = load_migrations(package)[0].sql
    assert hashlib.sha256(text.encode()).hexdigest() == FROZEN[package], "add a migration instead"


async def test_jobs_in_every_status_live_on(old_url: str) -> None:
    async with open_shell(old_url) as shell:
        for status, path in PATHS.items():
            await shell.run(f"insert into jobs (kind, goal) values ('echo', '{status}')")
            for to in path:
                await shell.run(f"update jobs set status = '{to}' where goal = '{status}'")
    app = App(old_url, migrate=True)

    @app.job
    async def echo(ctx: JobContext) -> str:
        return "done"

    async with app:
        store = await app.open()
        assert (await store.schema.schema_status()).current == len(load_migrations("perdure.store.sqlite"))
        before = {job.goal: job.status for job in (await app.jobs.list(limit=50)).items}
        assert before == {str(status): status for status in PATHS}
        assert await fsck(store) == []
        await app.work(once=True)
        after = {job.goal: job.status for job in (await app.jobs.list(limit=50)).items}
        assert [status for status in PATHS if status.terminal and after[status] is not status] == []
        assert after["PENDING"] is Status.COMPLETED
        assert after["RETRY"] is Status.COMPLETED
        assert await fsck(store) == []
