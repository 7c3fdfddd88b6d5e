"""The page about transactions of one's own: its programs and its SQL do what it says."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import RFC_4122, UUID

import psycopg
import pytest

from perdure import App
from tests import roles
from tests.docs.pages import ROOT, blocks
from tests.docs.support import ENVIRONMENT, a_worker, run_program, write_programs
from tests.postgres_server import run_apart
from tests.runtime.support import PATIENCE, check_every_job, working
from tests.tx_callers import make_orders, names

PAGE = ROOT / "docs" / "transactions.md"
POSTGRES_SQL, SQLITE_SQL, SQLITE_ONCE = (block.text for block in blocks(PAGE, "sql"))
GRANTS = roles.make("shop")


def test_the_program(tmp_path: Path) -> None:
    write_programs(PAGE, tmp_path)
    with a_worker(tmp_path, "shop:app"):
        assert run_program(tmp_path, "order.py") == "shipped tea\n"
        assert run_program(tmp_path, "order.py") == "shipped tea\n", "as often as one likes"
    with closing(sqlite3.connect(tmp_path / "perdure.db")) as connection:
        assert connection.execute("select name from orders").fetchall() == [("tea",), ("tea",)]


async def test_the_program_for_postgres(postgres_url: str, tmp_path: Path) -> None:
    await make_orders(postgres_url)
    write_programs(PAGE, tmp_path)
    environment = {**ENVIRONMENT, "PERDURE_DATABASE_URL": postgres_url}
    with a_worker(tmp_path, "shop:app", environment):
        report = await asyncio.to_thread(run_program, tmp_path, "orders.py", environment)
    assert report == "shipped tea\nshipped coffee\n"
    assert await names(postgres_url) == ["coffee", "tea"]


async def test_the_function_of_postgres(postgres_url: str) -> None:
    async with App(postgres_url) as app:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            for statement in POSTGRES_SQL.split(";\n"):
                connection.execute(statement)
        later, now = (await app.jobs.list(kind="ship")).items
        assert (now.payload, now.priority, now.due_at) == ("tea", 5, now.created_at)
        assert (later.payload, later.priority, later.idempotency_key) == ("tea", 9, "ship:tea")
        assert not (await app.enqueue("ship", "tea", idempotency_key="ship:tea", elsewhere=True)).created
        await check_every_job(app)


async def test_the_grants_are_enough_and_needed(postgres_url: str) -> None:
    grants = [statement for statement in GRANTS.split(";") if "grant " in statement]
    async with App(postgres_url) as app:
        with psycopg.connect(postgres_url) as connection:
            connection.execute(GRANTS)
            connection.execute("set local role shop")
            connection.execute("select perdure.enqueue('ship', '1', idempotency_key => 'k')")
            await app.enqueue("ship", 1, tx=connection, idempotency_key="k", elsewhere=True)
            connection.rollback()
            for left_out in grants:
                connection.execute(GRANTS.replace(left_out, ""))
                connection.execute("set local role shop")
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(
                        "select perdure.enqueue('ship', '1', idempotency_key => 'k') from generate_series(1, 2)"
                    )
                connection.rollback()


async def test_the_insert_of_sqlite(tmp_path: Path) -> None:
    """Through a connection that knows nothing of perdure."""
    app = App(f"sqlite:///{tmp_path}/perdure.db")

    @app.job
    async def ship(ctx: Any, order: str) -> str:
        return f"shipped {order}"

    async with app, working(app):
        with closing(sqlite3.connect(tmp_path / "perdure.db", timeout=30)) as connection, connection:
            [(id,)] = connection.execute(SQLITE_SQL).fetchall()
        assert await app.jobs.result(id, timeout=PATIENCE) == "shipped tea"
        job, events = await app.jobs.get(id), await app.jobs.events(id)
        assert (job.id.version, job.priority, job.queue, job.max_retries) == (7, 9, "default", 3)
        assert events[0].payload == {"actor": "till", "via": "sql"}
        insert, look = SQLITE_ONCE.split("\n\n")
        with closing(sqlite3.connect(tmp_path / "perdure.db", timeout=30)) as connection:
            for _ in range(2):
                with connection:
                    connection.execute(insert)
            [(id, status)] = connection.execute(look).fetchall()
        assert status == "PENDING"
        job = await app.jobs.get(id)
        assert job.due_at is not None
        assert 299 < (job.due_at - job.created_at).total_seconds() < 301
        again = await app.enqueue(ship, "tea", idempotency_key="ship:tea")
        assert (again.id, again.created) == (job.id, False)
        await again.cancel()
        await check_every_job(app)


def test_ids_that_the_insert_makes(tmp_path: Path) -> None:
    """Many, and each of them is one that perdure could have made."""

    async def make() -> None:
        async with App(f"sqlite:///{tmp_path}/perdure.db"):
            pass

    run_apart(make())
    with closing(sqlite3.connect(tmp_path / "perdure.db")) as connection, connection:
        insert = "insert into jobs (kind) values ('x') returning id"
        texts = [connection.execute(insert).fetchone()[0] for _ in range(500)]
    ids = [UUID(text) for text in texts]
    assert [str(id) for id in ids] == texts
    assert len(set(ids)) == 500
    assert {id.version for id in ids} == {7}
    assert {id.variant for id in ids} == {RFC_4122}
    times = [id.int >> 80 for id in ids]
    assert times == sorted(times)
    assert abs(times[-1] / 1000 - time.time()) < PATIENCE
