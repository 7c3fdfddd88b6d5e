"""What is particular to a pooler in transaction mode. The promises of the store are tested through it too: see conftest.py."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest

from perdure.model.errors import StoreUnreachable
from perdure.store.open import open_store
from perdure.store.postgres.engine.connections import COMMON, HOT, close_quietly, connect
from perdure.store.postgres.engine.pooler import PoolerConnection, is_through_pooler
from perdure.store.postgres.engine.url import through_pooler
from perdure.store.postgres.store import PostgresStore
from perdure.store.protocol import Store
from tests.conformance.support import S, checked_log, event, new_job, outcome, started
from tests.pgbouncer_server import POOL_SIZE, PgBouncer

SETTINGS = "plan_cache_mode lock_timeout search_path jit idle_in_transaction_session_timeout enable_seqscan"
SESSION = """select pid, (select count(*) from pg_prepared_statements where not from_sql) as prepared,
    (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()) as locks,
    array(select setting from pg_settings where name = any($1) order by name) as settings
    from pg_stat_activity where pid = pg_backend_pid()"""
FENCE = 4711


@pytest.fixture
def pooled_url(pgbouncer: PgBouncer, postgres_url: str) -> str:
    """A fresh, migrated database, through PgBouncer."""
    return pgbouncer.url(postgres_url)


@pytest.fixture
async def pooled(pooled_url: str) -> AsyncIterator[Store]:
    """A store on it, which finds out by itself that a pooler is between."""
    store = await open_store(pooled_url)
    yield store
    await store.close()


async def look(url: str) -> "Counter[tuple[object, ...]]":
    """What is left in the sessions behind the pooler, as another program finds them."""
    others = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(POOL_SIZE)]
    found: Counter[tuple[object, ...]] = Counter()
    try:
        for other in others:
            await other.execute("begin")  # now each has a session of its own
        for other in others:
            row = await other.fetchrow(SESSION, SETTINGS.split())
            assert row is not None
            found[row["prepared"], row["locks"], *row["settings"]] += 1
    finally:
        for other in others:
            other.terminate()
    return found


async def test_nothing_is_left_in_a_session(pooled: Store, pooled_url: str) -> None:
    before = await look(pooled_url)
    await asyncio.gather(*(busy(pooled) for _ in range(20)))
    assert await look(pooled_url) == before
    assert len(before) == 1


async def busy(store: Store) -> None:
    """Calls over each kind of connection."""
    lease = await started(store)
    await asyncio.gather(*(store.leases.record(lease, [event()]) for _ in range(3)))
    await store.leases.heartbeat([lease], ttl=30)
    await store.leases.finish(lease, outcome(S.COMPLETED))
    await checked_log(store, lease.job_id)
    await store.jobs.situation(lease.job_id)


async def test_more_callers_than_sessions(pooled: Store, pooled_url: str) -> None:
    """Several processes, each with its connections, share the few sessions."""
    others = [await open_store(pooled_url) for _ in range(6)]
    try:
        await asyncio.gather(*(busy(store) for store in others for _ in range(5)))
    finally:
        for other in others:
            await other.close()


async def test_a_pooler_that_keeps_the_settings_to_itself_is_noticed(
    make_pgbouncer: Callable[..., PgBouncer], postgres_url: str
) -> None:
    """As many hosters configure it."""
    sent = ", ".join({**COMMON, **HOT, "extra_float_digits": ""})
    with make_pgbouncer(ignore_startup_parameters=sent) as pooler:
        store = await open_store(pooler.url(postgres_url))
        try:
            assert isinstance(store, PostgresStore)
            assert not store.engine.notifier.hears_others
            await busy(store)
        finally:
            await store.close()


@pytest.mark.parametrize(
    "settings", [{"pool_mode": "session"}, {"default_pool_size": "1"}], ids=["session mode", "one session"]
)
async def test_other_settings_of_the_pooler(
    make_pgbouncer: Callable[..., PgBouncer], postgres_url: str, settings: dict[str, str]
) -> None:
    """With one session for all of them no transaction may wait for another one of its own process."""
    with make_pgbouncer(**settings) as pooler:
        url = pooler.url(postgres_url)
        stores = [await open_store(url) for _ in range(1 if "pool_mode" in settings else 3)]
        try:
            await asyncio.gather(*(busy(store) for store in stores for _ in range(5)))
            assert await stores[0].schema.migrate() == []
        finally:
            for store in stores:
                await store.close()


async def test_statement_mode_is_refused_at_once(make_pgbouncer: Callable[..., PgBouncer], postgres_url: str) -> None:
    pooler = make_pgbouncer(pool_mode="statement")
    with pooler, pytest.raises(StoreUnreachable, match="not allowed in statement pooling mode"):
        await open_store(pooler.url(postgres_url))


async def test_a_hint_is_sent_through_a_pooler(pooled: Store, postgres_url: str) -> None:
    direct = await open_store(postgres_url)
    try:
        async with direct.hints.listen("work") as work:
            await pooled.jobs.enqueue(new_job())
            assert await work.wait(10)
    finally:
        await direct.close()


async def test_what_a_lost_connection_may_still_commit_is_waited_for(pooled_url: str) -> None:
    lost, found = await connection_to(pooled_url), await connection_to(pooled_url)
    try:
        await lost.outlast(FENCE)
        async with lost.transaction():
            waiting = asyncio.create_task(found.outlast(FENCE))
            await asyncio.sleep(0.1)
            assert not waiting.done()
        await asyncio.wait_for(waiting, 5)
    finally:
        await close_quietly(lost)
        await close_quietly(found)


async def test_a_transaction_that_its_client_left_open_is_ended(pooled_url: str) -> None:
    lost, found = await connection_to(pooled_url), await connection_to(pooled_url)
    await lost.outlast(FENCE)
    await lost.transaction().start()
    await asyncio.wait_for(found.outlast(FENCE), 5)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await lost.execute("commit")
    lost.terminate()
    await close_quietly(found)


async def connection_to(url: str) -> PoolerConnection:
    connection = await connect(through_pooler(url), HOT)
    assert is_through_pooler(connection)
    return connection


async def test_of_many_events_all_are_read(pooled: Store) -> None:
    """fsck reads them with a cursor."""
    lease = await started(pooled)
    for _ in range(13):
        await pooled.leases.record(lease, [event() for _ in range(100)])
    page = await pooled.checks.check()
    assert (page.jobs, page.findings) == (1, ())
