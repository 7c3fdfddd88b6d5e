"""What decides whether a job moves, read as of one moment."""

from uuid import uuid4

import pytest

from perdure.model.approvals import ApprovalStatus
from perdure.model.effects import close_wait, open_wait
from perdure.model.errors import JobNotFound
from perdure.model.explanation import MOST_AHEAD, NEWEST_EVENTS
from perdure.model.jobs import Outcome, Wait
from perdure.model.workers import WorkerState
from perdure.store.protocol import Store
from tests.conformance.support import (
    HOUR,
    KINDS,
    S,
    approve,
    claim,
    enqueue,
    event,
    later,
    near,
    new_approval,
    new_job,
    own_queue,
    run_to,
    started,
)
from tests.conformance.test_workers import registered


async def test_it_holds_the_job_as_it_stands(store: Store) -> None:
    for status in S:
        job_id = await run_to(store, status)
        seen = await store.jobs.situation(job_id)
        assert seen.job == await store.jobs.get_job(job_id)
        assert seen.events == tuple(await store.jobs.list_events(job_id))
        assert near(seen.now, await store.now())
        assert (seen.claimed_at is not None) == status.leased
        assert seen.holder is None, "no worker registered"
        assert len(seen.approvals) == (status is S.WAITING_FOR_APPROVAL)


async def test_unknown_jobs_and_those_of_neighbours(file_store: Store, neighbour: Store) -> None:
    job_id = await enqueue(file_store)
    for store, id in ((file_store, uuid4()), (neighbour, job_id)):
        with pytest.raises(JobNotFound):
            await store.jobs.situation(id)


async def test_what_a_claim_would_take_first_is_ahead(store: Store) -> None:
    queue = own_queue()
    first = [await enqueue(store, queue=queue, priority=priority) for priority in (5, 9, 7)]
    job_id = await enqueue(store, queue=queue, priority=5)
    await enqueue(store, queue=queue, priority=5)
    await enqueue(store, queue=queue, priority=4)
    await enqueue(store, queue=queue, priority=9, delay=HOUR)
    await enqueue(store, priority=9)
    assert (await store.jobs.situation(job_id)).ahead == len(first)
    taken = await store.leases.claim(worker_id="w", queue=queue, kinds=KINDS, limit=3, ttl=30)
    assert {job.id for job in taken} == set(first)
    assert (await store.jobs.situation(job_id)).ahead == 0


async def test_earlier_due_comes_first_and_what_is_not_due_has_no_place(store: Store) -> None:
    queue = own_queue()
    early = await later(store, -HOUR)
    later_due, sooner_due = await enqueue(store, queue=queue), await enqueue(store, queue=queue, run_at=early)
    assert (await store.jobs.situation(later_due)).ahead == 1
    assert (await store.jobs.situation(sooner_due)).ahead == 0
    delayed = await enqueue(store, queue=queue, delay=HOUR)
    assert (await store.jobs.situation(delayed)).ahead == 0


async def test_no_more_than_so_many_are_counted(store: Store) -> None:
    queue = own_queue()
    await store.jobs.enqueue_many([new_job(queue=queue, priority=1 + n % 9) for n in range(MOST_AHEAD + 200)])
    assert (await store.jobs.situation(await enqueue(store, queue=queue, priority=1))).ahead == MOST_AHEAD


async def test_workers_and_the_holder(store: Store) -> None:
    larch, birch = await registered(store, "larch"), await registered(store, "birch", queues=("other",))
    job = await claim(store, await enqueue(store), worker_id=larch)
    seen = await store.jobs.situation(job.id)
    assert {w.id: w.held for w in seen.workers} == {larch: 1, birch: 0}
    assert seen.holder is not None
    assert (seen.holder.id, seen.holder.held, seen.holder.alive) == (larch, 1, True)
    assert seen.claimed_at == job.claimed_at
    await store.workers.beat_worker(larch, state=WorkerState.STOPPED)
    seen = await store.jobs.situation(job.id)
    assert [w.id for w in seen.workers] == [birch]
    assert seen.holder is not None
    assert (seen.holder.id, seen.holder.state, seen.holder.alive) == (larch, WorkerState.STOPPED, False)


async def test_workers_of_neighbours_do_not_count(file_store: Store, neighbour: Store) -> None:
    await registered(neighbour, "larch")
    assert (await file_store.jobs.situation(await enqueue(file_store))).workers == ()


async def test_the_approvals_it_waits_for_decided_or_not(store: Store) -> None:
    lease = await started(store)
    old = await store.approvals.request_approval(lease, new_approval("old"))
    await store.approvals.decide(approve(old))
    await store.leases.record(lease, [event()], effects=[close_wait("approval", "old")])
    one, two = [await store.approvals.request_approval(lease, new_approval(key)) for key in ("one", "two")]
    await store.leases.record(lease, [], effects=[open_wait(Wait("nap", "timer", await later(store, HOUR)))])
    await store.leases.finish(lease, Outcome(S.WAITING_FOR_APPROVAL))
    await store.approvals.decide(approve(one))
    seen = await store.jobs.situation(lease.job_id)
    statuses = {a.id: a.status for a in seen.approvals}
    assert statuses == {one.id: ApprovalStatus.APPROVED, two.id: ApprovalStatus.PENDING}


async def test_only_the_newest_events(store: Store) -> None:
    lease = await started(store)
    await store.leases.record(lease, [event(f"note {n}") for n in range(NEWEST_EVENTS + 5)])
    seen = await store.jobs.situation(lease.job_id)
    assert len(seen.events) == NEWEST_EVENTS
    assert [e.version for e in seen.events][-1] == seen.job.version
    assert seen.events[0].type == "note 5"
