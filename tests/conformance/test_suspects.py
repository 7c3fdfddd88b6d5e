"""Jobs that were lost together: they come back without using a retry, and only the one that was alone is blamed."""

from datetime import timedelta

from perdure.model.jobs import MAX_SUSPICION, SUSPECT_AT, Lease, Outcome
from perdure.model.workers import WorkerInfo, WorkerState
from perdure.store.protocol import Store
from tests.conformance.support import KINDS, OTHER, S, checked_log, claim, enqueue, run_out

POISON = "the one that dies"


async def lost(store: Store, *leases: Lease) -> dict[object, str]:
    """These started jobs of a worker are lost at once; what became of them."""
    await run_out(store, *leases)
    reaped = await store.leases.reap(worker_id=OTHER)
    assert {r.job_id for r in reaped} == {lease.job_id for lease in leases}
    return {r.job_id: r.status for r in reaped}


async def begun(store: Store, number: int, worker_id: str = POISON, **changes: object) -> list[Lease]:
    """So many fresh jobs of one worker, whose handlers have begun."""
    leases = [(await claim(store, await enqueue(store, **changes), worker_id=worker_id)).lease for _ in range(number)]
    await store.leases.heartbeat(leases, ttl=60, started=[lease.job_id for lease in leases])
    return leases


async def again(store: Store, lease: Lease, worker_id: str = POISON) -> Lease:
    """The next attempt of a job that was lost, as soon as it is due."""
    job = await store.jobs.get_job(lease.job_id)
    assert job.status is S.RETRY
    if job.next_retry_at is not None and job.next_retry_at > await store.now():
        await store.jobs.retry_now(lease.job_id, note='{"actor": "ann"}')
    return (await claim(store, lease.job_id, worker_id=worker_id)).lease


async def test_what_is_lost_together_uses_no_retry(store: Store) -> None:
    leases = await begun(store, 5, max_retries=0)
    statuses = await lost(store, *leases)
    assert set(statuses.values()) == {S.RETRY}
    due = []
    for lease in leases:
        job = await store.jobs.get_job(lease.job_id)
        assert (job.retry_count, job.note["reason"], job.note["suspicion"]) == (0, "lease_expired", 1)
        assert job.next_retry_at is not None
        due.append(job.next_retry_at)
        await checked_log(store, lease.job_id)
        [run] = await store.jobs.list_runs(lease.job_id)
        assert run.error_kind == "lease_lost"
    due.sort()
    assert due[-1] - due[0] > timedelta(seconds=0.3), "they do not all come back at once"
    assert (await again(store, leases[0])).attempt == 2


async def test_the_claim_says_how_suspect_it_is(store: Store) -> None:
    [one, two] = await begun(store, 2)
    await lost(store, one, two)
    queue = (await store.jobs.get_job(one.job_id)).queue
    await store.jobs.retry_now(one.job_id, note='{"actor": "ann"}')
    [claimed] = await store.leases.claim(worker_id=OTHER, queue=queue, kinds=KINDS, limit=1, ttl=30)
    assert claimed.suspicion == 1
    fresh = await claim(store, await enqueue(store))
    assert fresh.suspicion == 0


async def test_the_only_one_is_blamed(store: Store) -> None:
    [lease] = await begun(store, 1, max_retries=0)
    unstarted = (await claim(store, await enqueue(store), worker_id=POISON)).lease
    await run_out(store, unstarted, started=False)
    await run_out(store, lease)
    statuses = {r.job_id: r.status for r in await store.leases.reap(worker_id=OTHER)}
    assert statuses == {lease.job_id: S.DEADLETTER, unstarted.job_id: S.RETRY}, "what never began is no company"


async def test_other_workers_are_no_company(store: Store) -> None:
    [lease] = await begun(store, 1, max_retries=0)
    [elsewhere] = await begun(store, 1, worker_id="another", max_retries=0)
    assert set((await lost(store, lease, elsewhere)).values()) == {S.DEADLETTER}


async def test_leases_that_run_out_one_after_another_were_lost_together(store: Store) -> None:
    """Each record renews a lease, so those of a dead worker do not end at the same moment."""
    now = await store.now()
    info = WorkerInfo(POISON, "host", 1, ("default",), (), 9, WorkerState.RUNNING, now, now, alive=True)
    await store.workers.register_worker(info)
    leases = await begun(store, 3, max_retries=0)
    for lease in leases:
        assert list((await lost(store, lease)).values()) == [S.RETRY]
    assert [(await store.jobs.get_job(lease.job_id)).note["suspicion"] for lease in leases] == [1, 1, 1]


async def test_a_suspect_that_is_lost_alone_is_blamed(store: Store) -> None:
    [one, two] = await begun(store, 2, max_retries=1)
    for _ in range(SUSPECT_AT):
        await lost(store, one, two)
        one, two = await again(store, one), await again(store, two)
    assert list((await lost(store, one)).values()) == [S.RETRY], "its retry"
    assert (await store.jobs.get_job(one.job_id)).retry_count == 1
    assert list((await lost(store, await again(store, one))).values()) == [S.DEADLETTER]
    await checked_log(store, one.job_id)


async def test_the_most_suspect_one_is_blamed_where_others_ran_as_well(store: Store) -> None:
    [one, two] = await begun(store, 2, max_retries=0)
    for _ in range(SUSPECT_AT):
        await lost(store, one, two)
        one = await again(store, one)
        two = await again(store, two)
    innocent = await begun(store, 3, worker_id="another", max_retries=0)
    await store.leases.finish(one, Outcome(S.RETRY, reason="worker_drained"))
    one = await again(store, one, "another")
    statuses = await lost(store, one, *innocent)
    assert statuses.pop(one.job_id) is S.DEADLETTER
    assert set(statuses.values()) == {S.RETRY}


async def test_equal_suspects_are_spared_a_limited_number_of_times(store: Store) -> None:
    one, two = await begun(store, 2, max_retries=0)
    for _ in range(MAX_SUSPICION):
        assert set((await lost(store, one, two)).values()) == {S.RETRY}
        one, two = await again(store, one), await again(store, two)
    assert set((await lost(store, one, two)).values()) == {S.DEADLETTER}


async def test_an_end_clears_it_and_a_hand_back_does_not(store: Store) -> None:
    one, two = await begun(store, 2)
    await lost(store, one, two)
    one, two = await again(store, one), await again(store, two)
    await store.leases.finish(one, Outcome(S.RETRY, error="it broke", uses_retry=True))
    await store.leases.finish(two, Outcome(S.RETRY, reason="worker_drained"))
    found = []
    for lease in (one, two):
        queue = (await store.jobs.get_job(lease.job_id)).queue
        found += await store.leases.claim(worker_id=OTHER, queue=queue, kinds=KINDS, limit=1, ttl=30)
    assert {job.id: job.suspicion for job in found} == {one.job_id: 0, two.job_id: 1}
