"""The tables every job passes through are vacuumed by those who fill them with dead rows. PostgreSQL only."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit, urlunsplit

import pytest

from perdure.model.jobs import Outcome
from perdure.model.states import Status
from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell, open_shell
from tests.conformance.support import KINDS, enqueue

VACUUMS = """select sum(vacuum_count)::int as n from pg_stat_user_tables where relname in ('job_queue', 'job_claims')"""


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.store.postgres.engine.vacuum.CLAIMS", 3)


async def work_off(store: Store, jobs: int) -> None:
    """Enqueue, claim and complete so many jobs, one by one."""
    for _ in range(jobs):
        await enqueue(store, queue="default")
        [job] = await store.leases.claim(worker_id="w-1", queue="default", kinds=KINDS, limit=1, ttl=30)
        assert await store.leases.finish(job.lease, Outcome(Status.COMPLETED, result="1")) is Status.COMPLETED


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):  # statistics come when their backend thinks of it
        while not await check():
            await asyncio.sleep(0.05)


async def vacuums(shell: Shell) -> int:
    [row] = await shell.run(VACUUMS)
    return int(row["n"])


@pytest.mark.usefixtures("soon")
async def test_claims_bring_a_vacuum_of_both_tables(postgres_url: str) -> None:
    store = await open_store(postgres_url)
    try:
        async with open_shell(postgres_url) as shell:
            await work_off(store, 2)
            await asyncio.sleep(0.1)
            assert await vacuums(shell) == 0, "for a few it is not worth it"
            await work_off(store, 1)

            async def both() -> bool:
                return await vacuums(shell) >= 2

            await eventually(both)
    finally:
        await store.close()


@pytest.mark.usefixtures("soon")
async def test_who_may_not_vacuum_works_all_the_same(postgres_url: str) -> None:
    role = f"guest_{secrets.token_hex(4)}"  # roles are the server's, and other tests may share it
    async with open_shell(postgres_url) as shell:
        await shell.run(f"create role {role} login password 'welcome'")
        try:
            await shell.run(f"grant usage on schema perdure to {role}")
            await shell.run(f"grant select, insert, update, delete on all tables in schema perdure to {role}")
            parts = urlsplit(postgres_url)
            host = parts.netloc.rpartition("@")[2]
            store = await open_store(urlunsplit(parts._replace(netloc=f"{role}:welcome@{host}")))
            try:
                await work_off(store, 7)
                await asyncio.sleep(0.2)
                assert await vacuums(shell) == 0
            finally:
                await store.close()
        finally:
            await shell.run(f"drop owned by {role}")
            await shell.run(f"drop role {role}")
