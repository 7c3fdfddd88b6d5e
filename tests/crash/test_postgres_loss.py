"""PostgreSQL goes away: connections are cut, the server crashes. No worker is restarted, nothing is lost or doubled."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from perdure import App, Request
from perdure.model.errors import StoreUnreachable
from tests.conftest import migrate
from tests.crash.apps import Errand, Op, make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew, ForkServers, all_ended, until
from tests.pgbouncer_server import PgBouncer
from tests.postgres_server import PostgresServer, run_apart

pytestmark = pytest.mark.crash

CUTTING = 6.0
"""Seconds of cutting connections."""
CUT = """select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"""


async def test_connections_are_cut_all_the_time(postgres_crew: Crew) -> None:
    """Jobs are enqueued, run and finished meanwhile; whether a commit whose answer was lost took place is always found out."""
    await work_while_connections_are_cut(postgres_crew, postgres_crew.url)


async def test_connections_behind_a_pooler_are_cut_all_the_time(
    servers: ForkServers, pgbouncer: PgBouncer, postgres_url: str, tmp_path: Path
) -> None:
    """The same where a process cannot know which sessions its transactions were in."""
    with Crew(servers, pgbouncer.url(postgres_url), tmp_path / "crew") as crew:
        await work_while_connections_are_cut(crew, postgres_url)


async def work_while_connections_are_cut(crew: Crew, server_url: str) -> None:
    """server_url: the database itself, which the crew may reach in another way."""
    tried: list[int] = []
    acknowledged: dict[UUID, int] = {}
    async with make_app(crew.url) as app:
        workers = [crew.start(lease=10) for _ in range(2)]
        await crew.ready(*workers)
        cutter = asyncio.create_task(cut(server_url))
        producers = [asyncio.create_task(produce(app, n, tried, acknowledged)) for n in range(3)]
        await asyncio.sleep(CUTTING)
        for task in (*producers, cutter):
            task.cancel()
        for task in (*producers, cutter):
            with suppress(asyncio.CancelledError):
                await task
        await all_ended(app)
        assert [worker.exit_code for worker in workers] == [None, None], "they lived through it"
        await crew.dismiss(*workers)
        snapshot = await check(server_url, acknowledged, at_rest=True)
    assert len(acknowledged) > 20
    assert {job["status"] for job in snapshot.jobs.values()} == {"COMPLETED"}
    stored = Counter(number_of(job["result"]) for job in snapshot.jobs.values())
    assert set(stored.values()) == {1}, "a job was stored twice"
    assert set(acknowledged.values()) <= set(stored) <= set(tried)
    ran = Counter(line.split()[0] for line in crew.lines("counted"))
    for id, job in snapshot.jobs.items():
        assert ran[str(id)] <= job["attempt"], "it ran more often than it was claimed"


async def cut(url: str) -> None:
    """Cut every connection of the database, again and again."""
    connection = await asyncpg.connect(url)
    try:
        while True:
            await asyncio.sleep(random.uniform(0.02, 0.3))
            await connection.execute(CUT)
    finally:
        connection.terminate()


async def produce(app: App, own: int, tried: list[int], acknowledged: dict[UUID, int]) -> None:
    """Enqueue numbered jobs, singly and together, with and without a key."""
    for n in range(own, 1_000_000, 3):
        numbers = [n] if own else [(n + 1) * 10_000_000 + m for m in range(3)]
        tried += numbers
        with suppress(StoreUnreachable):
            if own == 0:
                for number, handle in zip(
                    numbers, await app.enqueue_many([Request("count", m) for m in numbers]), strict=True
                ):
                    acknowledged[handle.id] = number
            elif own == 1:
                handle = await app.enqueue("count", n)
                acknowledged[handle.id] = n
            else:
                for _ in range(2):
                    handle = await app.enqueue("count", n, idempotency_key=f"key {n}")
                    acknowledged[handle.id] = n


def number_of(result: object) -> int:
    """The number a job was enqueued with, as its result tells."""
    assert isinstance(result, int)
    return result


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that this test may crash."""
    with PostgresServer(own=True) as server:
        yield server


async def test_the_server_crashes_in_the_middle_of_a_drain(
    own_server: PostgresServer, servers: ForkServers, tmp_path: Path
) -> None:
    """Workers wait for it and go on by themselves; a caller that waits for a result gets it."""
    url = own_server.create_database("crashing")
    run_apart(migrate(url))
    errand = Errand(
        [Op("step", "one"), Op("tool", "two", on_unknown="retry"), Op("sleep", "nap", 0.1), Op("step", "three", 0.02)]
    )
    with Crew(servers, url, tmp_path / "crew") as crew:
        async with make_app(url) as app:
            handles = await app.enqueue_many([Request("errand", errand) for _ in range(150)])
            workers = [crew.start(lease=10, concurrency=8) for _ in range(2)]
            waiting = asyncio.create_task(app.jobs.wait(handles[-1].id, timeout=60))
            for part in (1, 2):
                await until(lambda part=part: len(crew.lines("effects")) > part * 100, what="some work")  # type: ignore[misc]
                await asyncio.to_thread(own_server.restart)
            await all_ended(app, [handle.id for handle in handles])
            assert (await waiting).status == "COMPLETED"
            assert [worker.exit_code for worker in workers] == [None, None], "they lived through it"
            await crew.dismiss(*workers)
            snapshot = await check(url, [handle.id for handle in handles], at_rest=True)
        assert snapshot.statuses() == {"COMPLETED": len(handles)}
