"""A lease with an end: nothing renews it beyond, and the database ends the attempt as one that ran into its timeout."""

from datetime import timedelta

import pytest

from perdure.model.errors import LeaseLost
from perdure.model.jobs import Lease
from perdure.model.workers import WorkerInfo, WorkerState
from perdure.store.protocol import Store
from tests.conformance.support import KINDS, NOTE, OTHER, S, checked_log, claim, enqueue, event, later, passed, started


async def expiry(store: Store, lease: Lease) -> timedelta:
    """How long the lease lasts from now on."""
    info = (await store.jobs.get_job(lease.job_id)).lease
    assert info is not None
    return info.expires_at - await store.now()


async def beat(store: Store, lease: Lease, ends: float | None, *, ttl: float = 60.0) -> bool:
    """Renew one lease, as a worker does whose handler has begun; whether it is live."""
    id = lease.job_id
    its_end = {} if ends is None else {id: ends}
    return await store.leases.heartbeat([lease], ttl=ttl, started=[id], ends=its_end) == {id}


async def hang(store: Store, lease: Lease) -> None:
    """The attempt goes on past the end of its lease, whose worker renews it as long as it can."""
    assert await beat(store, lease, 0.001)
    await passed(store, await later(store, 0.002))


async def test_a_lease_is_not_renewed_beyond_its_end(store: Store) -> None:
    lease, other = await started(store), await started(store)
    both = [lease, other]
    ids = {lease.job_id for lease in both}
    assert await store.leases.heartbeat(both, ttl=60, started=[], ends={lease.job_id: 5.0}) == ids
    assert await expiry(store, lease) <= timedelta(seconds=5)
    assert await expiry(store, other) > timedelta(seconds=50), "one that has no end is not touched"
    assert await beat(store, lease, None)
    assert await expiry(store, lease) <= timedelta(seconds=5)
    assert await beat(store, lease, 600.0), "a worker that lies about it"
    assert await expiry(store, lease) <= timedelta(seconds=5)
    await store.leases.record(lease, [event()])
    await store.leases.record(lease, [event(), event()])
    assert await expiry(store, lease) <= timedelta(seconds=5), "nor does a step renew it"
    assert await beat(store, lease, None, ttl=1.0)
    assert await expiry(store, lease) <= timedelta(seconds=1), "a short lease stays short"


async def test_the_worker_can_write_nothing_after_the_end(store: Store) -> None:
    lease = await started(store)
    await hang(store, lease)
    assert not await beat(store, lease, None)
    with pytest.raises(LeaseLost):
        await store.leases.record(lease, [event()])


async def test_it_ends_as_a_timeout(store: Store) -> None:
    lease = await started(store, max_retries=1)
    await hang(store, lease)
    [reaped] = await store.leases.reap(worker_id=OTHER)
    assert (reaped.job_id, reaped.status) == (lease.job_id, S.RETRY)
    job = await store.jobs.get_job(lease.job_id)
    assert (job.status, job.retry_count, job.note["error_kind"]) == (S.RETRY, 1, "timeout")
    assert "did not stop" in job.note["error"]
    [run] = await store.jobs.list_runs(lease.job_id)
    assert (run.outcome, run.error_kind) == (S.RETRY, "timeout")
    await checked_log(store, lease.job_id)


async def test_it_uses_up_retries(store: Store) -> None:
    lease = await started(store, max_retries=0)
    await hang(store, lease)
    [reaped] = await store.leases.reap(worker_id=OTHER)
    job = await store.jobs.get_job(lease.job_id)
    assert (reaped.status, job.status, job.error_kind) == (S.DEADLETTER, S.DEADLETTER, "timeout")
    assert "longer than its timeout" in (job.error_message or "")
    await checked_log(store, lease.job_id)


async def test_past_its_deadline_it_fails(store: Store) -> None:
    lease = await started(store, deadline=await later(store, 0.01), max_retries=3)
    await passed(store, await later(store, 0.01))
    await hang(store, lease)
    [reaped] = await store.leases.reap(worker_id=OTHER)
    job = await store.jobs.get_job(lease.job_id)
    assert (reaped.status, job.status, job.error_kind) == (S.FAILED, S.FAILED, "timeout")
    assert "the deadline passed" in (job.error_message or "")
    await checked_log(store, lease.job_id)


async def test_a_cancel_wins(store: Store) -> None:
    lease = await started(store)
    await store.jobs.cancel(lease.job_id, note=NOTE)
    await hang(store, lease)
    [reaped] = await store.leases.reap(worker_id=OTHER)
    assert reaped.status is S.CANCELLED
    await checked_log(store, lease.job_id)


async def test_a_worker_that_dies_before_the_end_has_lost_its_lease(store: Store) -> None:
    lease = await started(store)
    assert await beat(store, lease, 600.0, ttl=0.001)
    await passed(store, await later(store, 0.002))
    await store.leases.reap(worker_id=OTHER)
    job = await store.jobs.get_job(lease.job_id)
    assert (job.status, job.note["reason"]) == (S.RETRY, "lease_expired")


async def test_the_next_attempt_has_no_end(store: Store) -> None:
    lease = await started(store)
    await hang(store, lease)
    await store.leases.reap(worker_id=OTHER)
    queue = (await store.jobs.get_job(lease.job_id)).queue
    [again] = await store.leases.claim(worker_id=OTHER, queue=queue, kinds=KINDS, limit=1, ttl=30)
    assert await beat(store, again.lease, None)
    assert await expiry(store, again.lease) > timedelta(seconds=50)


async def test_the_grace_after_a_cancel_is_that_of_the_worker(store: Store) -> None:
    now = await store.now()
    for id, grace in (("hasty", 0.001), ("patient", 60.0)):
        state = WorkerState.RUNNING
        info = WorkerInfo(id, "host", 1, ("default",), (), 1, state, now, now, alive=True, grace=grace)
        await store.workers.register_worker(info)
    shown = {worker.id: worker.grace for worker in await store.workers.list_workers()}
    assert shown == {"hasty": 0.001, "patient": 60.0}
    ids = {}
    for worker_id in ("hasty", "patient", "without a row"):
        claimed = await claim(store, await enqueue(store), worker_id=worker_id)
        ids[worker_id] = claimed.id
        assert await store.jobs.cancel(claimed.id, note=NOTE) is S.RUNNING
    await passed(store, await later(store, 0.002))
    assert [job.job_id for job in await store.leases.reap(worker_id=OTHER)] == [ids["hasty"]]
    assert (await store.jobs.get_job(ids["hasty"])).status is S.CANCELLED
    assert (await store.jobs.get_job(ids["patient"])).status is S.RUNNING
    assert (await store.jobs.get_job(ids["without a row"])).status is S.RUNNING
