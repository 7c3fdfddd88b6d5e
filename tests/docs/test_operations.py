"""The page about operations: backups that are taken while jobs are about, restored, proven by fsck, and gone on with."""

import asyncio
import itertools
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from perdure import App, JobContext
from perdure.model.states import Status
from perdure.sync import Client
from tests.postgres_server import PostgresServer, find_binaries

numbers = itertools.count(1)


def notebook(url: str, steps: list[str]) -> App:
    """An App whose job records a step, asks, and records another."""
    app = App(url)

    @app.job
    async def publish(ctx: JobContext, title: str) -> str:
        await ctx.step("draft", steps.append, f"draft {title}")
        await ctx.approve("send", title=f"Send {title}?")
        await ctx.step("send", steps.append, f"send {title}")
        return title

    return app


async def fill(app: App) -> None:
    """A job that waits for an answer, one that is done, one that is due and one that a worker holds, which then is gone."""
    asked, done = [await app.enqueue("publish", title) for title in ("tea", "milk")]
    await app.work(once=True)
    assert await asked.status() == Status.WAITING_FOR_APPROVAL
    await app.approve(done.id)
    await app.work(once=True)
    await app.enqueue("publish", "held", max_retries=1)
    store = await app.open()
    assert await store.leases.claim(worker_id="gone", queue="default", kinds={"publish": 3}, limit=1, ttl=0.5)
    await app.enqueue("publish", "due")


async def check_copy(url: str) -> None:
    """A restored database is in order, and what was recorded before the backup does not run again."""
    steps: list[str] = []
    async with notebook(url, steps) as app:
        assert [finding async for finding in app.database.fsck() if not finding.note] == []
        async with asyncio.timeout(60):
            while (await app.jobs.count()).get("COMPLETED", 0) < 4:
                await app.work(once=True, chores=0.1)
                for approval in (await app.approvals.list()).items:
                    await app.approve(approval.id)
    assert sorted(steps) == ["draft due", "draft held", "send due", "send held", "send tea"]


def by_backup(source: Path, target: Path) -> None:
    """As `.backup` of the sqlite3 shell does it."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def by_vacuum(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as old:
        old.execute("vacuum into ?", (str(target),))


def by_perdure(source: Path, target: Path) -> None:
    """As `perdure db backup` does it."""
    with Client(f"sqlite:///{source}") as client:
        assert client.database.backup(target) == target.stat().st_size


@pytest.mark.parametrize("copy", [by_perdure, by_backup, by_vacuum], ids=["perdure", "backup", "vacuum"])
async def test_a_copy_of_sqlite(tmp_path: Path, copy: object) -> None:
    source, target = tmp_path / "perdure.db", tmp_path / "copy.db"
    async with notebook(f"sqlite:///{source}", []) as app:
        await fill(app)
        assert callable(copy)
        copy(source, target)
        await app.enqueue("publish", "too late")
    await check_copy(f"sqlite:///{target}")


async def test_a_dump_of_postgres(postgres: PostgresServer, postgres_url: str, tmp_path: Path) -> None:
    binaries = find_binaries()
    dump = tmp_path / "perdure.dump"
    name = f"perdure_test_{os.getpid()}_restored_{next(numbers)}"
    async with notebook(postgres_url, []) as app:
        await fill(app)
        run(binaries / "pg_dump", "--format=custom", "--schema=perdure", f"--file={dump}", postgres_url)
        await app.enqueue("publish", "too late")
    url = postgres.create_database(name)
    try:
        run(binaries / "pg_restore", "--exit-on-error", f"--dbname={url}", str(dump))
        await check_copy(url)
    finally:
        postgres.drop_database(name)


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
