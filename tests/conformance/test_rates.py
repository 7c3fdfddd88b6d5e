"""Rates: how many jobs of a concurrency key start in any minute, whatever becomes of them."""

import asyncio
from datetime import timedelta

import pytest

from perdure.model.states import Status
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell
from tests.conformance.support import near, own_queue
from tests.conformance.test_limits import KEY, end, keyed, take


async def test_no_more_start_in_a_minute_than_the_rate_whatever_became_of_them(store: Store) -> None:
    await store.limits.say_rate(KEY, 3)
    queue = own_queue()
    ids = await keyed(store, queue, 8, most=None)
    first = await take(store, queue, 2)
    assert [job.id for job in first] == ids[:2]
    for job in first:
        await end(store, job)
    assert [job.id for job in await take(store, queue)] == ids[2:3]
    assert await take(store, queue) == []
    assert [(await store.jobs.get_job(id)).held for id in ids[3:]] == [True] * 5
    limit = await store.limits.get_limit(KEY)
    assert limit.rate is not None
    assert (limit.rate.per_minute, limit.rate.started, limit.rate.set_by_hand) == (3, 3, False)
    assert near(limit.rate.next_at, await store.now() + timedelta(seconds=60), within=30)
    assert limit.waiting == 5


async def test_a_key_whose_rate_is_used_up_delays_no_job_of_another_key(store: Store) -> None:
    await store.limits.say_rate(KEY, 1)
    queue = own_queue()
    await keyed(store, queue, 30, most=None, priority=9)
    [other] = await keyed(store, queue, 1, key="other", most=None)
    assert [job.concurrency_key for job in await take(store, queue, 2)] == [KEY, "other"]
    [plain] = await keyed(store, queue, 1, key="third", most=None)
    assert [job.id for job in await take(store, queue, 1)] == [plain]
    assert (await store.jobs.get_job(other)).status is Status.RUNNING


async def test_a_retry_counts_as_a_start(store: Store) -> None:
    await store.limits.say_rate(KEY, 2)
    queue = own_queue()
    await keyed(store, queue, 1, most=None)
    for _ in range(2):
        [job] = await take(store, queue)
        await end(store, job, Status.PARKED)
    assert await take(store, queue) == []


async def test_the_next_ones_start_as_the_starts_get_old(file_store: Store, shell: Shell) -> None:
    store, queue = file_store, own_queue()
    await store.limits.say_rate(KEY, 2)
    ids = await keyed(store, queue, 5, most=None)
    assert len(await take(store, queue)) == 2
    assert await take(store, queue) == []
    await pass_a_minute(shell)
    assert [job.id for job in await take(store, queue)] == ids[2:4]
    assert await take(store, queue) == []
    await pass_a_minute(shell)
    assert [job.id for job in await take(store, queue)] == ids[4:]
    rows = await shell.run("select sum(number) as n from key_starts")
    assert int(rows[0]["n"]) <= 5


async def test_the_rows_of_starts_do_not_add_up_over_keys_that_are_used_once(file_store: Store, shell: Shell) -> None:
    store, queue = file_store, own_queue()
    for number in range(5):
        key = f"customer:{number}"
        await store.limits.say_rate(key, 2)
        await keyed(store, queue, 1, key=key, most=None)
        assert len(await take(store, queue)) == 1
        for _ in range(3):
            await pass_a_minute(shell)
        assert [row["key"] for row in await shell.run("select key from key_starts")] == [key]


async def pass_a_minute(shell: Shell) -> None:
    """What was written about starts was written a minute before."""
    minute = "interval '61 seconds'" if shell.postgres else "61000000"
    await shell.run(f"update key_starts set at = at - {minute}")
    await shell.run(f"update rates set wake_at = wake_at - {minute}")


async def test_a_rate_and_a_maximum_hold_together(store: Store) -> None:
    await store.limits.say_rate(KEY, 3)
    queue = own_queue()
    await keyed(store, queue, 9, most=2)
    first = await take(store, queue)
    assert len(first) == 2
    assert await take(store, queue) == []
    for job in first:
        await end(store, job)
    assert len(await take(store, queue)) == 1


async def test_what_is_set_by_hand_wins_over_code(store: Store) -> None:
    await store.limits.say_rate(KEY, 1)
    queue = own_queue()
    await keyed(store, queue, 9, most=None)
    assert len(await take(store, queue)) == 1
    await store.limits.set_rate(KEY, 4, by="ann")
    assert len(await take(store, queue)) == 3
    await store.limits.say_rate(KEY, 9)
    assert await take(store, queue) == []
    [listed] = await store.limits.list_limits()
    assert listed.rate is not None
    assert (listed.rate.per_minute, listed.rate.started, listed.rate.set_by_hand) == (4, 4, True)
    await store.limits.set_rate(KEY, None, by="ann")
    assert len(await take(store, queue)) == 5


async def test_a_key_without_a_rate_counts_no_starts(file_store: Store, shell: Shell) -> None:
    queue = own_queue()
    await keyed(file_store, queue, 3)
    assert len(await take(file_store, queue)) == 2
    assert await shell.run("select * from key_starts") == []
    assert (await file_store.limits.get_limit(KEY)).rate is None


@pytest.mark.parametrize("rate", [1, 7])
async def test_many_workers_at_once(store: Store, rate: int) -> None:
    await store.limits.say_rate(KEY, rate)
    queue = own_queue()
    await keyed(store, queue, 20, most=None)
    for _ in range(3):
        taken = await asyncio.gather(*(take(store, queue, 3, worker_id=f"w{n}") for n in range(6)))
        await asyncio.gather(*(end(store, job) for jobs in taken for job in jobs))
    limit = await store.limits.get_limit(KEY)
    assert limit.rate is not None
    assert limit.rate.started == rate
