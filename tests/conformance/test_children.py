"""Children: stored with their parent's record, and their ends answer its waits, whatever ends them and whenever."""

import asyncio
import itertools
from collections.abc import Sequence
from uuid import UUID

import asyncpg
import pytest

from perdure.model.effects import await_jobs, close_wait, open_wait, settle_wait, spawn_job
from perdure.model.errors import LeaseLost
from perdure.model.ids import uuid7
from perdure.model.jobs import Lease, Outcome, Wait
from perdure.model.states import Status
from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell, open_shell
from tests.conformance.support import (
    WORKER,
    S,
    checked_log,
    claim,
    claimable,
    event,
    new_job,
    outcome,
    own_queue,
    passed,
    run_out,
    started,
)

keys = itertools.count(1)


async def spawned(store: Store, lease: Lease, number: int = 1) -> list[UUID]:
    """Children of this job."""
    jobs = [new_job(note="{}", queue=own_queue()) for _ in range(number)]
    named = [event("child_spawned", f'{{"key": "k{next(keys)}", "child": "{job.id}"}}') for job in jobs]
    await store.leases.record(lease, named, effects=[spawn_job(job) for job in jobs])
    return [job.id for job in jobs]


async def wait_for(store: Store, lease: Lease, ids: Sequence[UUID], key: str = "all") -> None:
    """Open a wait for their ends, as a handler does."""
    begun = event("wait_started", f'{{"key": "{key}", "kind": "child", "subject": "s"}}')
    await store.leases.record(lease, [begun], effects=[open_wait(Wait(key, "child", None, "s")), await_jobs(key, ids)])
    await store.leases.record(lease, (), effects=[settle_wait(key)])


async def answered(store: Store, lease: Lease, key: str = "all") -> bool:
    wait = await store.leases.read_wait(lease, "child", key)
    assert wait is not None
    return wait.answered_at is not None


async def run_child(store: Store, id: UUID, status: Status = S.COMPLETED) -> None:
    job = await claim(store, id)
    await store.leases.finish(job.lease, outcome(status))


async def test_a_child_is_stored_with_the_record_of_its_parent(store: Store) -> None:
    lease = await started(store)
    [child] = await spawned(store, lease)
    job = await store.jobs.get_job(child)
    assert (job.parent_id, job.status, job.tenant_id) == (lease.job_id, S.PENDING, store.tenant_id)
    [state] = await store.children.read_children([child, uuid7()])
    assert (state.id, state.kind, state.parent_id, state.status) == (child, job.kind, lease.job_id, S.PENDING)
    assert await claimable(store, child)
    await checked_log(store, lease.job_id)


async def test_a_parent_that_lost_its_lease_stores_no_child(store: Store) -> None:
    lease = await started(store)
    await run_out(store, lease)
    new = new_job()
    with pytest.raises(LeaseLost):
        await store.leases.record(lease, [event("child_spawned")], effects=[spawn_job(new)])
    assert await store.children.read_children([new.id]) == []


async def test_a_child_that_is_written_again_is_one(store: Store) -> None:
    lease, new = await started(store), new_job()
    for _ in range(2):
        await store.leases.record(lease, (), effects=[spawn_job(new)])


async def test_many_children_of_one_write(store: Store) -> None:
    lease = await started(store)
    ids = await spawned(store, lease, 700)
    assert {state.id for state in await store.children.read_children(ids)} == set(ids)


@pytest.mark.parametrize("status", [S.COMPLETED, S.FAILED, S.CANCELLED, S.DEADLETTER])
async def test_the_end_of_a_child_wakes_its_parent(store: Store, status: Status) -> None:
    lease = await started(store)
    [child] = await spawned(store, lease)
    await wait_for(store, lease, [child])
    await store.leases.finish(lease, Outcome(S.PARKED))
    assert not await claimable(store, lease.job_id)
    await run_child(store, child, status)
    [state] = await store.children.read_children([child])
    assert state.status is status
    assert await claimable(store, lease.job_id)


async def test_it_wakes_with_the_last_of_several(store: Store) -> None:
    lease = await started(store)
    ids = await spawned(store, lease, 3)
    await wait_for(store, lease, ids)
    await store.leases.finish(lease, Outcome(S.PARKED))
    for id in (ids[2], ids[0]):
        await run_child(store, id)
        assert (await store.jobs.get_job(lease.job_id)).due_at is None
    await run_child(store, ids[1], S.FAILED)
    assert (await store.jobs.get_job(lease.job_id)).due_at is not None


async def test_children_that_end_together_wake_it(store: Store) -> None:
    lease = await started(store)
    ids = await spawned(store, lease, 20)
    await wait_for(store, lease, ids)
    await store.leases.finish(lease, Outcome(S.PARKED))
    leases = [(await claim(store, id)).lease for id in ids]
    await store.leases.finish_many([(one, outcome(S.COMPLETED)) for one in leases[:10]])
    await asyncio.gather(*(store.leases.finish(one, outcome(S.COMPLETED)) for one in leases[10:]))
    assert await claimable(store, lease.job_id)


async def test_a_child_that_ended_before_the_wait(store: Store) -> None:
    lease = await started(store)
    ids = await spawned(store, lease, 2)
    await run_child(store, ids[0])
    await wait_for(store, lease, ids)
    assert not await answered(store, lease)
    await run_child(store, ids[1])
    assert await answered(store, lease)
    await wait_for(store, lease, ids, "again")
    assert await answered(store, lease, "again")


async def test_a_job_that_does_not_exist_has_ended(store: Store) -> None:
    lease = await started(store)
    await wait_for(store, lease, [uuid7()])
    assert await answered(store, lease)


async def test_two_jobs_may_wait_for_one(store: Store) -> None:
    one, other = await started(store), await started(store)
    [child] = await spawned(store, one)
    for lease in (one, other):
        await wait_for(store, lease, [child])
        await store.leases.finish(lease, Outcome(S.PARKED))
    await run_child(store, child)
    assert await claimable(store, one.job_id)
    assert await claimable(store, other.job_id)


async def test_an_end_by_sql_wakes_it(file_store: Store, shell: Shell) -> None:
    for status in ("CANCELLED", "FAILED"):
        lease = await started(file_store)
        [child] = await spawned(file_store, lease)
        await wait_for(file_store, lease, [child])
        await file_store.leases.finish(lease, Outcome(S.PARKED))
        await shell.run(f"update jobs set status = '{status}' where id = {shell.id(child)}")
        assert await claimable(file_store, lease.job_id)


async def test_a_deadline_of_the_child_wakes_it(store: Store) -> None:
    lease = await started(store)
    new = new_job(deadline=await store.now())
    await store.leases.record(lease, (), effects=[spawn_job(new)])
    await wait_for(store, lease, [new.id])
    await store.leases.finish(lease, Outcome(S.PARKED))
    await passed(store, new.deadline)
    await store.leases.expire()
    assert await claimable(store, lease.job_id)


async def test_a_closed_wait_waits_for_nothing(file_store: Store, shell: Shell) -> None:
    lease = await started(file_store)
    ids = await spawned(file_store, lease, 3)
    mine = f"select count(*) as n from awaited_jobs where job_id = {shell.id(lease.job_id)}"
    await wait_for(file_store, lease, ids)
    await wait_for(file_store, lease, ids[:1], "one")
    assert [row["n"] for row in await shell.run(mine)] == [4]
    await file_store.leases.record(lease, (), effects=[close_wait("child", "all")])
    assert [row["n"] for row in await shell.run(mine)] == [1]
    await file_store.jobs.cancel(lease.job_id, note="{}", force=True)
    assert [row["n"] for row in await shell.run(mine)] == [0]


async def test_a_cancelled_parent_is_noted_until_its_children_are_cancelled(store: Store) -> None:
    lease = await started(store)
    waiting, running, ended_ = await spawned(store, lease, 3)
    await run_child(store, ended_)
    held = await claim(store, running)
    await store.leases.finish(lease, Outcome(S.PARKED))
    assert await store.children.cancelled_parents(limit=10) == []
    await store.jobs.cancel(lease.job_id, note="{}")
    assert await store.children.cancelled_parents(limit=10) == [lease.job_id]
    assert await store.children.children_to_cancel(lease.job_id, limit=10) == [waiting, running]
    assert await store.jobs.cancel(waiting, note="{}") is S.CANCELLED
    assert await store.jobs.cancel(running, note="{}") is S.RUNNING
    assert await store.children.children_to_cancel(lease.job_id, limit=10) == []
    await store.children.forget_cancelled(lease.job_id)
    assert await store.children.cancelled_parents(limit=10) == []
    assert [one.job_id for one in await store.leases.cancel_requests(WORKER)] == [held.lease.job_id]


async def test_a_cancelled_job_without_live_children_is_not_noted(store: Store) -> None:
    lease, other = await started(store), await started(store)
    [child] = await spawned(store, lease)
    await run_child(store, child)
    for one in (lease, other):
        await store.jobs.cancel(one.job_id, note="{}", force=True)
    assert await store.children.cancelled_parents(limit=10) == []


async def test_the_tree_and_what_stands_above(store: Store) -> None:
    top = await started(store)
    left, right = await spawned(store, top, 2)
    below = (await claim(store, left)).lease
    await store.leases.record(below, (), effects=[])
    [leaf] = await spawned(store, below)
    tree = await store.children.tree(top.job_id, limit=10)
    assert [(node.id, node.depth, node.parent_id) for node in tree] == [
        (top.job_id, 0, None),
        (left, 1, top.job_id),
        (right, 1, top.job_id),
        (leaf, 2, left),
    ]
    assert len(await store.children.tree(top.job_id, limit=2)) == 2
    assert await store.children.tree(uuid7(), limit=2) == []
    assert await store.children.waiters(leaf) == [(left, leaf), (top.job_id, left)]
    assert await store.children.waiters(top.job_id) == []
    await wait_for(store, below, [right])
    assert set(await store.children.waiters(right)) == {(left, right), (top.job_id, right), (top.job_id, left)}


async def test_prune_leaves_the_children_of_a_live_job(store: Store) -> None:
    lease = await started(store)
    [child] = await spawned(store, lease)
    await run_child(store, child)
    job = await store.jobs.get_job(child)
    await passed(store, job.finished_at)
    for keep_logs in (True, False):
        assert await store.retention.prune([child], keep_logs=keep_logs) == 0
    await store.leases.finish(lease, outcome(S.COMPLETED))
    assert await store.retention.prune([child]) == 1


async def test_the_situation_names_what_is_waited_for(store: Store) -> None:
    lease = await started(store)
    ids = await spawned(store, lease, 5)
    await wait_for(store, lease, ids)
    await run_child(store, ids[0])
    awaited = (await store.jobs.situation(lease.job_id)).awaited
    assert [(one.key, one.child_id, one.status, one.of) for one in awaited] == [
        ("all", id, S.PENDING, 4) for id in ids[1:4]
    ]


# PostgreSQL has many writers: an end that is not committed while the wait opens -----------------------------------------------


@pytest.fixture
def postgres_store_url(postgres_url: str) -> str:
    return postgres_url


async def test_an_end_in_flight_while_the_wait_opens_is_not_missed(postgres_store_url: str) -> None:
    """The end has looked who waits before the wait was committed, and commits after the wait was settled: if nothing waited for
    it, both would have looked too early."""
    store = await open_store(postgres_store_url)
    await store.schema.migrate()
    ending = await asyncpg.connect(postgres_store_url)
    try:
        lease = await started(store)
        ids = await spawned(store, lease, 2)
        await run_child(store, ids[1])
        transaction = ending.transaction()
        await transaction.start()
        await ending.execute("update perdure.jobs set status = 'CANCELLED' where id = $1", ids[0])
        opening = asyncio.create_task(wait_for(store, lease, ids))
        await asyncio.wait({opening}, timeout=0.5)
        assert not opening.done(), "it waits for the end that has looked already"
        await transaction.commit()
        await asyncio.wait_for(opening, 10)
        assert await answered(store, lease)
    finally:
        await ending.close()
        await store.close()


async def test_two_ends_in_flight_answer_once(postgres_store_url: str) -> None:
    store = await open_store(postgres_store_url)
    await store.schema.migrate()
    try:
        lease = await started(store)
        ids = await spawned(store, lease, 2)
        await wait_for(store, lease, ids)
        async with open_shell(postgres_store_url) as shell:
            first, second = await asyncpg.connect(postgres_store_url), await asyncpg.connect(postgres_store_url)
            try:
                both = [connection.transaction() for connection in (first, second)]
                for transaction in both:
                    await transaction.start()
                await first.execute("update perdure.jobs set status = 'CANCELLED' where id = $1", ids[0])
                other = asyncio.create_task(
                    second.execute("update perdure.jobs set status = 'CANCELLED' where id = $1", ids[1])
                )
                await asyncio.wait({other}, timeout=0.3)
                await both[0].commit()
                await asyncio.wait_for(other, 10)
                await both[1].commit()
            finally:
                await first.close()
                await second.close()
            assert await shell.run("select job_id from awaited_jobs") == []
        assert await answered(store, lease)
    finally:
        await store.close()
