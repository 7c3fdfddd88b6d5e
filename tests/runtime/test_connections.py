"""How many connections a program has on PostgreSQL."""

import asyncio
from contextlib import suppress

import asyncpg
import pytest

from perdure import App, Request
from tests.pgbouncer_server import PgBouncer

SESSIONS = """select count(*) from pg_stat_activity
    where datname = current_database() and application_name = 'perdure' and backend_type = 'client backend'"""


class Sampler:
    """The most sessions of perdure in a database that were seen at any moment."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self.most = 0
        self.looks = 0
        self._connection = connection

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.most = max(self.most, await self._connection.fetchval(SESSIONS))
            self.looks += 1
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("pooled", [False, True], ids=["directly", "pgbouncer"])
async def test_a_program_that_only_enqueues_has_two(
    request: pytest.FixtureRequest, postgres_url: str, pooled: bool
) -> None:
    pooler: PgBouncer | None = request.getfixturevalue("pgbouncer") if pooled else None
    url = postgres_url if pooler is None else pooler.url(postgres_url)
    connection = await asyncpg.connect(postgres_url)
    sampler = Sampler(connection)
    sampling = asyncio.create_task(sampler.run())
    try:
        async with App(url) as app:
            for n in range(30):
                await app.enqueue("count", n)
            for _ in range(10):
                await asyncio.gather(*(app.enqueue("count", n) for n in range(64)))
                await asyncio.gather(*(app.enqueue("count", n, idempotency_key=f"key {n}") for n in range(64)))
            for _ in range(10):
                await app.enqueue_many([Request("count", n) for n in range(50)])
                await app.enqueue("count", 0)
    finally:
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        await connection.close()
    assert sampler.looks > 20
    assert 1 <= sampler.most <= 2
