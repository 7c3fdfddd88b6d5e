"""Limits: how many jobs of a concurrency key run at a time."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from perdure.model.jobs import ClaimedJob, Lease, Outcome
from perdure.store.protocol import Store
from perdure.store.protocol.leases import NO_LIMITS, KindLimit
from tests.conformance.sql_shell import open_shell
from tests.conformance.support import (
    HOUR,
    KINDS,
    OTHER,
    WORKER,
    S,
    checked_log,
    enqueue,
    new_approval,
    outcome,
    own_queue,
    run_out,
)

KEY = "customer:7"


async def keyed(
    store: Store, queue: str, number: int, *, key: str = KEY, most: int | None = 2, **changes: object
) -> list[UUID]:
    """Some jobs of a key."""
    return [
        await enqueue(store, queue=queue, concurrency_key=key, max_concurrent=most, **changes) for _ in range(number)
    ]


async def take(
    store: Store,
    queue: str,
    limit: int = 10,
    *,
    worker_id: str = WORKER,
    limits: Mapping[str, KindLimit] = NO_LIMITS,
    ttl: float = 30,
) -> list[ClaimedJob]:
    """What a worker gets that claims once, as it does: after it has looked for slots that became free."""
    await store.leases.release_held()
    return await store.leases.claim(worker_id=worker_id, queue=queue, kinds=KINDS, limit=limit, ttl=ttl, limits=limits)


async def end(store: Store, job: ClaimedJob, status: S = S.COMPLETED) -> None:
    """The attempt ends."""
    await store.leases.finish(job.lease, outcome(status))


async def test_no_more_jobs_of_a_key_run_than_its_maximum(store: Store) -> None:
    queue = own_queue()
    ids = await keyed(store, queue, 5)
    first = await take(store, queue)
    assert [job.id for job in first] == ids[:2]
    assert [job.concurrency_key for job in first] == [KEY, KEY]
    assert await take(store, queue, worker_id=OTHER) == []
    assert await store.leases.next_due([queue], KINDS) is None, "what is held does not keep workers awake"
    await end(store, first[0])
    [third] = await take(store, queue)
    assert third.id == ids[2]
    await end(store, third)
    await end(store, first[1])
    assert [job.id for job in await take(store, queue)] == ids[3:]
    for job_id in ids:
        await checked_log(store, job_id)


async def test_a_full_key_does_not_delay_other_jobs(store: Store) -> None:
    queue = own_queue()
    for n in range(30):
        await keyed(store, queue, 3, key=f"k{n}", most=1, priority=9)
    free = await enqueue(store, queue=queue, priority=1)
    other = await keyed(store, queue, 1, key="other", priority=1)
    got: list[UUID] = []
    for _ in range(8):
        got += [job.id for job in await take(store, queue, 10)]
    assert len(got) == 32
    assert {free, *other} <= set(got)


async def test_jobs_of_a_key_start_in_the_order_of_a_claim(store: Store) -> None:
    queue = own_queue()
    ids = await keyed(store, queue, 3, most=1)
    [first] = await take(store, queue)
    urgent = await keyed(store, queue, 1, most=1, priority=9)
    late = await keyed(store, queue, 1, most=1)
    order = [first.id]
    job = first
    while True:
        await end(store, job)
        got = await take(store, queue)
        if not got:
            break
        [job] = got
        order.append(job.id)
    assert order == [ids[0], *urgent, *ids[1:], *late]


async def test_a_slot_is_free_again_whatever_ends_the_lease(store: Store) -> None:
    queue = own_queue()
    ids = await keyed(store, queue, 8, most=1)
    [job] = await take(store, queue)
    await run_out(store, job.lease, started=False)
    assert await take(store, queue) == [], "an expired lease holds its slot until it is reaped"
    await store.leases.reap(worker_id=OTHER)
    [job] = await take(store, queue)
    assert job.id == ids[1], "what was lost is due again later than the others, and waits for a slot again"
    await end(store, job, S.RETRY)
    [job] = await take(store, queue)
    assert job.id == ids[2]
    await store.jobs.cancel(job.id, note="{}", force=True)
    [job] = await take(store, queue)
    assert job.id == ids[3]
    await store.approvals.request_approval(job.lease, new_approval())
    await store.leases.finish(job.lease, Outcome(S.WAITING_FOR_APPROVAL))
    [job] = await take(store, queue)
    assert job.id == ids[4], "what waits for an approval holds no slot"
    await store.leases.set_waiting(job.lease, True)
    assert await take(store, queue) == [], "a job in WAITING keeps its lease, and its slot"
    await end(store, job, S.RETRY)
    [job] = await take(store, queue)
    assert job.id == ids[5]


async def test_a_job_let_through_and_then_cancelled_leaves_its_slot_to_the_next(store: Store) -> None:
    queue = own_queue()
    ids = await keyed(store, queue, 3, most=1)
    [job] = await take(store, queue)
    await end(store, job)
    assert await store.leases.release_held() == 1
    await store.jobs.cancel(ids[1], note="{}")
    assert await store.leases.release_held() == 1
    [job] = await store.leases.claim(worker_id=WORKER, queue=queue, kinds=KINDS, limit=5, ttl=30)
    assert job.id == ids[2]


async def test_the_handler_gives_a_key_and_a_maximum(store: Store) -> None:
    queue = own_queue()
    limits = {"echo": KindLimit("echo", 2)}
    ids = [await enqueue(store, queue=queue) for _ in range(4)]
    mine = await enqueue(store, queue=queue, concurrency_key="mine")
    other = await enqueue(store, queue=queue, kind="write")
    got = await take(store, queue, limits=limits)
    assert {job.id for job in got} == {*ids[:2], mine, other}
    assert {job.concurrency_key for job in got} == {"echo", "mine", None}
    assert (await store.jobs.get_job(ids[0])).concurrency_key == "echo"
    assert (await store.jobs.get_job(ids[3])).concurrency_key == "echo"
    assert (await store.jobs.get_job(ids[3])).held
    await end(store, next(job for job in got if job.id == ids[0]))
    assert [job.id for job in await take(store, queue, limits=limits)] == [ids[2]]
    # a later version of the code allows more
    raised = {"echo": KindLimit("echo", 5)}
    await end(store, next(job for job in got if job.id == ids[1]))
    assert [job.id for job in await take(store, queue, limits=raised)] == [ids[3]]


async def test_the_maximum_of_a_job_wins_over_that_of_its_handler(store: Store) -> None:
    queue = own_queue()
    await keyed(store, queue, 3, most=1)
    assert len(await take(store, queue, limits={"echo": KindLimit(None, 3)})) == 1
    queue = own_queue()
    await keyed(store, queue, 3, key="no maximum", most=None)
    assert len(await take(store, queue, limits={"echo": KindLimit(None, 2)})) == 2
    assert len(await take(store, queue)) == 0, "held under the handler's maximum"
    queue = own_queue()
    await keyed(store, queue, 3, key="no maximum at all", most=None)
    assert len(await take(store, queue)) == 3


async def test_a_claim_with_little_room_leaves_the_free_slots_to_others(store: Store) -> None:
    queue = own_queue()
    ids = await keyed(store, queue, 8, most=3)
    first = [(await take(store, queue, 1))[0] for _ in range(3)]
    assert [job.id for job in first] == ids[:3]
    assert await take(store, queue, 1) == []
    for job in first:
        await end(store, job)
    # one release for all of them, then three workers that claim one each, none of which releases again
    await store.leases.release_held()
    got = []
    for n in range(4):
        got += await store.leases.claim(worker_id=f"w{n}", queue=queue, kinds=KINDS, limit=1, ttl=30)
    assert [job.id for job in got] == ids[3:6]


async def test_a_job_whose_kind_no_worker_runs_does_not_stand_before_others(store: Store) -> None:
    queue = own_queue()
    [first] = await keyed(store, queue, 1, most=1)
    [job] = await take(store, queue)
    assert job.id == first
    await keyed(store, queue, 1, most=1, kind="research", priority=9)
    known = await keyed(store, queue, 1, most=1)
    assert await take(store, queue) == []
    await end(store, job)
    await store.leases.release_held()
    [job] = await store.leases.claim(worker_id=WORKER, queue=queue, kinds={"echo": 3}, limit=5, ttl=30)
    assert [job.id] == known


async def test_each_tenant_has_its_own_keys(file_store: Store, neighbour: Store) -> None:
    queue = own_queue()
    await keyed(file_store, queue, 2, most=1)
    await keyed(neighbour, queue, 2, most=1)
    assert len(await take(file_store, queue)) == 1
    [theirs] = await take(neighbour, queue)
    await end(neighbour, theirs)
    assert await take(file_store, queue) == []
    assert len(await take(neighbour, queue)) == 1


async def test_a_wakeup_that_nothing_saw_is_found_by_looking_at_every_key(
    file_store: Store, file_store_url: str
) -> None:
    queue = own_queue()
    ids = await keyed(file_store, queue, 3, most=1)
    [job] = await take(file_store, queue)
    await end(file_store, job)
    async with open_shell(file_store_url) as shell:
        await shell.run("delete from freed_slots")
    assert await take(file_store, queue) == []
    assert await file_store.leases.recheck_held() == 1
    assert [job.id for job in await take(file_store, queue)] == [ids[1]]


async def test_delayed_jobs_of_a_key_are_not_held_before_they_are_due(store: Store) -> None:
    queue = own_queue()
    await keyed(store, queue, 1, most=1, delay=HOUR, priority=9)
    ids = await keyed(store, queue, 2, most=1)
    [job] = await take(store, queue)
    await end(store, job)
    assert [job.id for job in await take(store, queue)] == [ids[1]]


@pytest.mark.parametrize("status", [S.RETRY, S.PARKED])
async def test_what_comes_back_keeps_its_key(store: Store, status: S) -> None:
    queue = own_queue()
    await keyed(store, queue, 1, most=1)
    [job] = await take(store, queue)
    await store.leases.finish(job.lease, outcome(status, delay=0.0) if status is S.RETRY else Outcome(status))
    [again] = await take(store, queue)
    assert again.lease == Lease(job.id, 2, WORKER)
    assert again.concurrency_key == KEY
    await keyed(store, queue, 1, most=1)
    assert await take(store, queue) == []


# -- set by hand ------------------------------------------------------------------------------------------------------------


async def test_what_an_operator_sets_wins_over_code(store: Store) -> None:
    queue = own_queue()
    ids = await keyed(store, queue, 6, most=1)
    [job] = await take(store, queue)
    await store.limits.set_limit(KEY, 3, by="ann")
    assert [job.id for job in await take(store, queue)] == ids[1:3], "a higher maximum lets held jobs go on"
    limit = await store.limits.get_limit(KEY)
    assert (limit.max, limit.in_use, limit.waiting, limit.set_by_hand, limit.full) == (3, 3, 3, True, True)
    assert limit.holders == tuple(ids[:3])
    await store.limits.set_limit(KEY, 0, by="ann")
    await end(store, job)
    assert await take(store, queue) == [], "a lower one ends no job, and none starts"
    assert (await store.limits.get_limit(KEY)).in_use == 2
    assert await store.limits.unset_limit(KEY)
    assert not await store.limits.unset_limit(KEY)
    assert await take(store, queue) == [], "two run, and code says one"
    for held in ids[1:3]:
        await store.jobs.cancel(held, note="{}", force=True)
    assert [job.id for job in await take(store, queue)] == ids[3:4]


async def test_the_limits_that_are_listed_are_the_live_leases(store: Store) -> None:
    queue = own_queue()
    await keyed(store, queue, 3, key="b", most=2)
    await keyed(store, queue, 1, key="a", most=None)
    await store.limits.set_limit("c", 7, by="ann")
    await take(store, queue)
    found = await store.limits.list_limits()
    assert [(x.key, x.max, x.in_use, x.waiting, x.set_by_hand) for x in found] == [
        ("a", None, 1, 0, False),
        ("b", 2, 2, 1, False),
        ("c", 7, 0, 0, True),
    ]
    assert [x.key for x in await store.limits.list_limits(limit=2)] == ["a", "b"]
    unknown = await store.limits.get_limit("unknown")
    assert (unknown.max, unknown.in_use, unknown.waiting, unknown.holders) == (None, 0, 0, ())


async def test_the_situation_of_a_held_job_has_the_limit(store: Store) -> None:
    queue = own_queue()
    ids = await keyed(store, queue, 2, most=1)
    [job] = await take(store, queue)
    held = await store.jobs.situation(ids[1])
    assert held.limit is not None
    assert held.limit.holders == (job.id,)
    assert held.limit.waiting == 1
    assert (await store.jobs.situation(ids[0])).limit is None


async def test_a_retry_is_not_kept_waiting_by_new_jobs_of_its_key(store: Store) -> None:
    """It stands where its due time puts it: behind those that were due before it, in front of those that come later."""
    queue, key = own_queue(), {"concurrency_key": "k", "max_concurrent": 1}
    before = [await enqueue(store, queue=queue, **key) for _ in range(3)]
    started: list[UUID] = []
    for turn in range(12):
        await store.leases.release_held()
        [job] = await store.leases.claim(worker_id="w", queue=queue, kinds=KINDS, limit=4, ttl=60)
        started.append(job.id)
        first = turn == 0
        how = outcome(S.RETRY, delay=0, uses_retry=False) if first else outcome(S.COMPLETED)
        await store.leases.finish(job.lease, how)
        for _ in range(2):
            await enqueue(store, queue=queue, **key)
    assert started[:4] == [*before, before[0]]
    assert len(set(started)) == 11
