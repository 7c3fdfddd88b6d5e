"""Enqueue: acknowledged means stored, and an idempotency key means once."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from perdure.model.errors import IdempotencyConflict
from perdure.model.ids import hash_json, uuid7
from perdure.model.jobs import JobFilter, NewJob
from perdure.store.open import open_store
from perdure.store.postgres.engine.hot_connection import HotConnection
from perdure.store.protocol import Store
from tests.conformance.support import (
    HOUR,
    KINDS,
    NOTE,
    WORKER,
    S,
    checked_log,
    claim,
    enqueue,
    later,
    near,
    new_job,
    outcome,
    started,
)

KEYED = {"idempotency_key": "order:42"}


async def everything(store: Store) -> int:
    return sum((await store.jobs.count_jobs(JobFilter(), by="status")).values())


async def test_a_job_is_born_pending_at_version_one(store: Store) -> None:
    origin = uuid7()
    deadline = await later(store, HOUR)
    asked = new_job(
        payload='{"n": [1, 2]}',
        kind="research",
        queue="deep",
        goal="Find out about 水獺",
        priority=8,
        max_retries=0,
        deadline=deadline,
        origin_id=origin,
        origin_kind="rerun",
        note=NOTE,
    )
    done = await store.jobs.enqueue(asked)
    assert (done.id, done.created) == (asked.id, True)
    job = await store.jobs.get_job(asked.id)
    assert (job.id, job.tenant_id, job.kind, job.queue, job.goal) == (
        asked.id,
        store.tenant_id,
        "research",
        "deep",
        "Find out about 水獺",
    )
    assert (job.payload, job.status, job.version, job.priority, job.attempt) == ({"n": [1, 2]}, S.PENDING, 1, 8, 0)
    assert (job.retry_count, job.max_retries, job.deadline) == (0, 0, deadline)
    assert (job.origin_id, job.origin_kind, job.idempotency_key) == (origin, "rerun", None)
    assert (job.result, job.started_at, job.finished_at, job.lease, job.waits) == (None, None, None, None, ())
    now = await store.now()
    assert near(job.created_at, now)
    assert near(job.run_at, now)
    assert near(job.due_at, now)
    assert job.created_at.utcoffset() == timedelta(0), "times are UTC"
    [born] = await checked_log(store, job.id)
    assert (born.type, born.version, born.previous_status, born.new_status) == ("job_created", 1, None, S.PENDING)
    assert (born.payload["actor"], born.payload["via"]) == ("ann", "test")


async def test_run_at_wins_over_delay_and_delay_counts_from_database_time(store: Store) -> None:
    when = await later(store, 2 * HOUR)
    delayed = await store.jobs.get_job(await enqueue(store, delay=HOUR))
    dated = await store.jobs.get_job(await enqueue(store, delay=HOUR, run_at=when))
    assert near(delayed.run_at, await later(store, HOUR))
    assert delayed.due_at == delayed.run_at
    assert dated.run_at == when == dated.due_at


async def test_the_same_key_and_payload_is_the_same_job(store: Store) -> None:
    first = await enqueue(store, **KEYED)
    again = await store.jobs.enqueue(new_job(queue="elsewhere", priority=9, **KEYED))
    assert (again.id, again.created) == (first, False)
    assert await everything(store) == 1
    job = await store.jobs.get_job(first)
    assert (job.priority, job.version) == (5, 1), "and nothing of it changed"


async def test_the_same_key_with_another_payload_is_a_conflict(store: Store) -> None:
    first = await enqueue(store, **KEYED)
    with pytest.raises(IdempotencyConflict, match="order:42"):
        await store.jobs.enqueue(new_job(payload='{"n": 2}', **KEYED))
    assert await everything(store) == 1
    assert (await store.jobs.get_job(first)).payload == {"n": 1}


async def test_a_key_belongs_to_its_kind(store: Store) -> None:
    ids = {await enqueue(store, kind=kind, **KEYED) for kind in ("echo", "research", "write")}
    assert len(ids) == 3


async def test_a_key_belongs_to_its_tenant(file_store: Store, neighbour: Store) -> None:
    mine = await enqueue(file_store, **KEYED)
    theirs = await neighbour.jobs.enqueue(new_job(payload='{"n": 2}', **KEYED))
    assert theirs.created
    assert theirs.id != mine
    assert not (await neighbour.jobs.enqueue(new_job(payload='{"n": 2}', **KEYED))).created


async def test_a_key_outlives_the_end_of_its_job(store: Store) -> None:
    lease = await started(store, **KEYED)
    await store.leases.finish(lease, outcome(S.COMPLETED))
    assert (await store.jobs.enqueue(new_job(**KEYED))).id == lease.job_id


async def test_a_thousand_jobs_without_a_key_are_a_thousand_jobs(store: Store) -> None:
    """NULL is no key: neither one at a time nor in a batch do two such jobs meet."""
    for _ in range(5):
        await asyncio.gather(*(store.jobs.enqueue(new_job()) for _ in range(100)))
    assert all(done.created for done in await store.jobs.enqueue_many([new_job() for _ in range(500)]))
    assert await everything(store) == 1000


async def test_concurrent_enqueues_of_one_key_make_one_job(store: Store) -> None:
    done = await asyncio.gather(*(store.jobs.enqueue(new_job(**KEYED)) for _ in range(30)))
    assert len({d.id for d in done}) == 1
    assert sum(d.created for d in done) == 1
    assert await everything(store) == 1


async def test_two_instances_agree_on_one_job(file_store: Store, twin: Store) -> None:
    for n in range(20):
        key = f"order:{n}"
        jobs = [new_job(idempotency_key=key) for _ in range(4)]
        done = await asyncio.gather(*(s.jobs.enqueue(j) for s, j in zip([file_store, twin] * 2, jobs, strict=True)))
        assert len({d.id for d in done}) == 1
        assert sum(d.created for d in done) == 1


async def test_a_conflict_does_not_spoil_the_batch_of_the_others(store: Store) -> None:
    await enqueue(store, **KEYED)
    bad = [store.jobs.enqueue(new_job(payload='{"n": 2}', **KEYED)) for _ in range(5)]
    good = [store.jobs.enqueue(new_job()) for _ in range(20)]
    results = await asyncio.gather(*bad, *good, return_exceptions=True)
    assert [type(r) for r in results[:5]] == [IdempotencyConflict] * 5
    assert not [r for r in results[5:] if isinstance(r, BaseException)]
    assert await everything(store) == 21


async def test_the_same_job_again_is_stored_once(store: Store) -> None:
    """A client that lost its connection repeats the call with the id it made."""
    job = new_job()
    await store.jobs.enqueue(job)
    assert (await store.jobs.enqueue(job)).id == job.id
    assert [done.id for done in await store.jobs.enqueue_many([job])] == [job.id]
    assert await everything(store) == 1
    assert len(await checked_log(store, job.id)) == 1


async def test_the_same_jobs_again_among_new_ones_are_stored_once(store: Store) -> None:
    known = [new_job() for _ in range(3)]
    await store.jobs.enqueue_many(known)
    jobs = [new_job() for _ in range(1200)]
    jobs[1], jobs[499], jobs[1100] = known
    assert [done.id for done in await store.jobs.enqueue_many(jobs)] == [job.id for job in jobs]
    assert await everything(store) == 1200
    jobs = [*known, *(new_job() for _ in range(20))]
    done = await asyncio.gather(*(store.jobs.enqueue(job) for job in jobs))
    assert [d.id for d in done] == [job.id for job in jobs]
    assert await everything(store) == 1220


async def test_one_job_twice_in_one_call_is_one_job(store: Store) -> None:
    job = new_job()
    assert [done.id for done in await store.jobs.enqueue_many([job, new_job(), job])][::2] == [job.id, job.id]
    assert await everything(store) == 2


async def test_what_was_inserted_is_not_asked_for(
    fresh_store_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the check it may have been claimed, completed and pruned: it must not count as never stored."""
    asked: list[list[UUID]] = []
    rows = HotConnection.rows

    async def noted(self: HotConnection, name: str, /, **values: Any) -> Any:
        if name == "find_enqueued":
            asked.append(values["id"])
        return await rows(self, name, **values)

    monkeypatch.setattr(HotConnection, "rows", noted)
    store = await open_store(fresh_store_url("postgres"))
    try:
        await store.schema.migrate()
        known = await enqueue(store, **KEYED)
        again = new_job(**KEYED)
        first, *done = await asyncio.gather(
            *(store.jobs.enqueue(job) for job in [again, *(new_job() for _ in range(20))])
        )
        assert (first.id, first.created) == (known, False)
        assert all(each.created for each in done)
    finally:
        await store.close()
    assert asked == [[again.id]]


async def test_jobs_that_cannot_all_be_read_are_not_stored_in_part(store: Store) -> None:
    def jobs(most: int, error: Exception) -> Iterator[NewJob]:
        for _ in range(most):
            yield new_job()
        raise error

    for most in (0, 3, 500, 1200):
        for error in (ZeroDivisionError(), FileNotFoundError("a validator's"), ConnectionResetError(), TimeoutError()):
            with pytest.raises(type(error)):
                await store.jobs.enqueue_many(jobs(most, error))
    assert await everything(store) == 0
    assert len(await store.jobs.enqueue_many(new_job() for _ in range(1200))) == 1200
    assert await everything(store) == 1200


async def test_what_some_of_many_have_is_not_given_to_all(store: Store) -> None:
    plain = new_job()
    rich = new_job(goal="tidy up", priority=9, queue="deep", max_retries=7, deadline=await later(store, HOUR), **KEYED)
    for order in ([plain, rich, new_job()], [new_job(goal="same"), new_job(goal="same")]):
        done = await store.jobs.enqueue_many(order)
        for asked, acknowledged in zip(order, done, strict=True):
            job = await store.jobs.get_job(acknowledged.id)
            for field in ("goal", "priority", "queue", "max_retries", "deadline", "idempotency_key"):
                assert getattr(job, field) == getattr(asked, field), field


async def test_many_are_stored_in_the_given_order(store: Store) -> None:
    known = await enqueue(store, **KEYED)
    jobs = [new_job(), new_job(**KEYED), new_job(priority=9)]
    done = await store.jobs.enqueue_many(jobs)
    assert [d.id for d in done] == [jobs[0].id, known, jobs[2].id]
    assert [d.created for d in done] == [True, False, True]
    assert await store.jobs.enqueue_many([]) == []
    for d in done:
        await checked_log(store, d.id)


@pytest.mark.parametrize("where", [0, 50, 99])
async def test_one_conflict_among_many_stores_none(store: Store, where: int) -> None:
    await enqueue(store, **KEYED)
    jobs = [new_job() for _ in range(100)]
    jobs[where] = new_job(payload='{"n": 2}', **KEYED)
    with pytest.raises(IdempotencyConflict):
        await store.jobs.enqueue_many(jobs)
    assert await everything(store) == 1


async def test_twins_within_one_call_are_one_job(store: Store) -> None:
    first, second = new_job(**KEYED), new_job(**KEYED)
    done = await store.jobs.enqueue_many([first, new_job(), second])
    assert done[0].id == done[2].id == first.id
    assert [d.created for d in done] == [True, True, False]
    assert await everything(store) == 2


async def test_twins_with_different_payloads_store_nothing(store: Store) -> None:
    with pytest.raises(IdempotencyConflict):
        await store.jobs.enqueue_many([new_job(**KEYED), new_job(), new_job(payload='{"n": 2}', **KEYED)])
    assert await everything(store) == 0


async def test_a_payload_of_a_mebibyte_comes_back_whole(store: Store) -> None:
    text = '"' + "x" * (1024 * 1024 - 2) + '"'
    job_id = await enqueue(store, payload=text)
    claimed = await claim(store, job_id)
    assert hash_json(claimed.payload) == hash_json(text)


async def test_what_was_acknowledged_is_claimable_by_others_at_once(file_store: Store, twin: Store) -> None:
    for _ in range(10):
        job_id = await enqueue(file_store, queue="q")
        taken = await twin.leases.claim(worker_id=WORKER, queue="q", kinds=KINDS, limit=1, ttl=30)
        assert [job.id for job in taken] == [job_id]
