"""A program that is killed while its own transaction is open: its job was never there."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from perdure import App, JobContext, Status
from tests.runtime.support import PATIENCE, working
from tests.tx_callers import make_orders, names

pytestmark = pytest.mark.crash

PROGRAM = """
import sqlite3, sys, psycopg
from perdure.sync import Client
url, when = sys.argv[1:]
connection = sqlite3.connect(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else psycopg.connect(url)
with Client(url) as client:
    connection.execute("insert into orders values ('tea')")
    handle = client.enqueue("ship", "tea", tx=connection, idempotency_key="order:42")
    if when == "after the commit":
        connection.commit()
    print(handle.id, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
async def app(file_store_url: str) -> AsyncIterator[App]:
    """An App whose worker is another process than the one that is killed."""
    app = App(file_store_url, migrate=True)

    @app.job
    async def ship(ctx: JobContext, name: str) -> str:
        return name

    async with app:
        await make_orders(file_store_url)
        yield app


async def killed(app: App, when: str) -> str:
    """Run the program to the point where it waits, kill it, and return the id it was given."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, app.settings["database_url"], when, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        report = (await process.stdout.readline()).decode().strip()
        process.send_signal(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
    assert report, "it did not get that far"
    return report


async def test_killed_before_the_commit(app: App) -> None:
    await killed(app, "before the commit")
    async with asyncio.timeout(PATIENCE):  # the key is free as soon as the database has noticed
        again = await app.enqueue("ship", "coffee", idempotency_key="order:42")
    assert again.created
    assert await names(app.settings["database_url"]) == []
    assert await app.jobs.count() == {"PENDING": 1}
    async with working(app):
        assert await again.result(PATIENCE) == "coffee"


async def test_killed_after_the_commit(app: App) -> None:
    id = await killed(app, "after the commit")
    assert (await app.jobs.get(id)).status is Status.PENDING
    assert await names(app.settings["database_url"]) == ["tea"]
    async with working(app):
        assert await app.jobs.result(id, timeout=PATIENCE) == "tea"
