"""Joining a caller's transaction, as the protocol says it; what each kind of connection needs is tested with the App."""

import sqlite3
from contextlib import closing

import asyncpg
import pytest

from perdure.model.errors import IdempotencyConflict, OtherDatabase, UnsupportedTransaction
from perdure.store.protocol import Store
from tests.conformance.support import HOUR, KINDS, WORKER, S, checked_log, claim, enqueue, later, near, new_job

KEYED = {"idempotency_key": "order:42"}


async def test_what_cannot_be_joined_is_refused(store: Store) -> None:
    with pytest.raises(UnsupportedTransaction):
        await (await store.jobs.prepare_enqueue(object(), [new_job()])).run_async()
    with pytest.raises(UnsupportedTransaction):
        (await store.jobs.prepare_enqueue(object(), [new_job()])).run()
    with closing(sqlite3.connect(":memory:")) as elsewhere:
        for call in (
            (await store.jobs.prepare_enqueue(elsewhere, [new_job()])).run,
            (await store.jobs.prepare_enqueue(elsewhere, [new_job()])).run,
        ):
            with pytest.raises(OtherDatabase):
                call()
        assert not elsewhere.in_transaction


async def test_joined_jobs_are_jobs_like_others(file_store: Store, twin: Store, file_store_url: str) -> None:
    """On a bare connection: acknowledged at once, there after the commit and not before, claimable by others."""
    known = await enqueue(file_store, **KEYED)
    jobs = [
        new_job(queue="q", priority=3),
        new_job(**KEYED),
        new_job(queue="q", delay=HOUR),
        new_job(queue="q", priority=9),
    ]
    if file_store_url.startswith("sqlite"):
        with closing(sqlite3.connect(file_store_url.removeprefix("sqlite:///"))) as connection:
            done = (await file_store.jobs.prepare_enqueue(connection, jobs)).run()
            assert await twin.leases.next_due(["q"], KINDS) is None
            connection.commit()
    else:
        other = await asyncpg.connect(file_store_url)
        async with other.transaction():
            joined = await file_store.jobs.prepare_enqueue(other, jobs)
            with pytest.raises(UnsupportedTransaction, match="async"):
                joined.run()
            done = await joined.run_async()
            assert await twin.leases.next_due(["q"], KINDS) is None
        await other.close()
    assert [d.id for d in done] == [jobs[0].id, known, jobs[2].id, jobs[3].id]
    assert [d.created for d in done] == [True, False, True, True]
    assert await twin.leases.next_due(["q"], KINDS) == 0
    assert near((await twin.jobs.get_job(jobs[2].id)).due_at, await later(twin, HOUR), within=30)
    for d in done:
        await checked_log(twin, d.id)
    claimed = await twin.leases.claim(worker_id=WORKER, queue="q", kinds=KINDS, limit=10, ttl=30)
    assert [job.id for job in claimed] == [jobs[3].id, jobs[0].id]


async def test_one_payload_may_be_spelled_in_many_ways(store: Store) -> None:
    first = await enqueue(store, payload='{"a": 1, "b": ["\\u0041", true]}', **KEYED)
    for same in ('{"b":["A",true],"a":1.0}', ' {"a":1,"b":["A",true]}', '{"a":10e-1,"b":["A",true]}'):
        done = await store.jobs.enqueue(new_job(payload=same, **KEYED))
        assert (done.id, done.created) == (first, False)
        assert [d.id for d in await store.jobs.enqueue_many([new_job(payload=same, **KEYED)])] == [first]
    deep = "[" * 2000 + "]" * 2000
    for other in (
        '{"a":1,"b":["A",1]}',
        '{"a":"1","b":["A",true]}',
        '{"a":1,"b":["A",true],"c":null}',
        "[]",
        "null",
        deep,
    ):
        with pytest.raises(IdempotencyConflict):
            await store.jobs.enqueue(new_job(payload=other, **KEYED))
    assert (await claim(store, first)).payload == '{"a": 1, "b": ["\\u0041", true]}'
    assert (await store.jobs.get_job(first)).status is S.RUNNING
