"""A lease is the right to write: renewed, lost by database time, fenced, and taken over by any worker's reaper."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from perdure.model.effects import open_wait, patch_state
from perdure.model.errors import IllegalTransition, LeaseLost
from perdure.model.jobs import MAX_LOST_STARTS, Lease, Outcome, Reaped, Wait
from perdure.model.states import Status
from perdure.store.protocol import Store
from tests.conformance.support import (
    NOTE,
    OTHER,
    WORKER,
    S,
    case,
    checked_log,
    claim,
    claimable,
    event,
    new_approval,
    outcome,
    passed,
    run_out,
    started,
)

Write = Callable[[Store, Lease], Awaitable[Any]]


def finishing(status: Status) -> Write:
    return lambda store, lease: store.leases.finish(lease, outcome(status))


WRITES: dict[str, Write] = {
    "record": lambda store, lease: store.leases.record(lease, [event()]),
    "record several": lambda store, lease: store.leases.record(lease, [event(), event()]),
    "record state": lambda store, lease: store.leases.record(lease, [], effects=[patch_state(progress=0.5, tokens=3)]),
    "record a wait": lambda store, lease: store.leases.record(
        lease, [event()], effects=[open_wait(Wait("nap", "timer"))]
    ),
    "set_waiting": lambda store, lease: store.leases.set_waiting(lease, True),
    "resume": lambda store, lease: store.leases.set_waiting(lease, False),
    "request_approval": lambda store, lease: store.approvals.request_approval(lease, new_approval()),
    **{f"finish {status}": finishing(status) for status in Status if status is not S.PENDING and not status.leased},
}


async def assert_fenced(store: Store, lease: Lease, write: Write) -> None:
    before = await store.jobs.get_job(lease.job_id), await store.jobs.list_events(lease.job_id)
    runs = await store.jobs.list_runs(lease.job_id)
    with pytest.raises(LeaseLost):
        await write(store, lease)
    assert (await store.jobs.get_job(lease.job_id), await store.jobs.list_events(lease.job_id)) == before, (
        "nothing was written"
    )
    assert await store.jobs.list_runs(lease.job_id) == runs
    assert (await store.approvals.list_approvals(job_id=lease.job_id)).items == ()


async def test_nothing_is_written_after_expiry(store: Store) -> None:
    """Also before another worker has taken the job over: expiry by database time is the end of the right."""
    for name, write in WRITES.items():
        with case(name):
            lease = await started(store)
            await run_out(store, lease)
            await assert_fenced(store, lease, write)


async def test_nothing_is_written_after_a_takeover(store: Store) -> None:
    for name, write in WRITES.items():
        with case(name):
            lease = await started(store)
            await run_out(store, lease)
            await store.leases.reap(worker_id=OTHER)
            await claim(
                store, lease.job_id, worker_id=lease.worker_id
            )  # a namesake: the attempt alone tells them apart
            await assert_fenced(store, lease, write)


async def test_nothing_is_written_with_a_forged_lease(store: Store) -> None:
    for name, write in WRITES.items():
        with case(name):
            lease = await started(store)
            await assert_fenced(store, lease._replace(attempt=2), write)
            await assert_fenced(store, lease._replace(attempt=0), write)
            await assert_fenced(store, lease._replace(worker_id=OTHER), write)


async def test_nothing_is_written_after_the_end(store: Store) -> None:
    for name, write in WRITES.items():
        with case(name):
            lease = await started(store)
            await store.leases.finish(lease, outcome(S.COMPLETED))
            await assert_fenced(store, lease, write)


async def test_a_stale_worker_does_not_spoil_the_batch_of_the_others(store: Store) -> None:
    """Writes of many share one commit; one that has lost its lease fails alone."""
    leases = [await started(store) for _ in range(12)]
    stale = leases[::3]
    await run_out(store, *stale)
    recorded = await asyncio.gather(*(store.leases.record(x, [event()]) for x in leases), return_exceptions=True)
    finished = await asyncio.gather(
        *(store.leases.finish(x, outcome(S.COMPLETED)) for x in leases), return_exceptions=True
    )
    for lease, first, last in zip(leases, recorded, finished, strict=True):
        if lease in stale:
            assert isinstance(first, LeaseLost)
            assert isinstance(last, LeaseLost)
        else:
            assert not isinstance(first, BaseException)
            assert last is S.COMPLETED
        await checked_log(store, lease.job_id)


async def test_a_heartbeat_renews_what_is_live_and_names_it(store: Store) -> None:
    kept, expired, finished, foreign = [await started(store) for _ in range(4)]
    await run_out(store, expired)
    await store.leases.finish(finished, outcome(S.COMPLETED))
    forged = foreign._replace(worker_id=OTHER)
    renewed = await store.leases.heartbeat([kept, expired, finished, forged], ttl=600)
    assert renewed == {kept.job_id}
    job = await store.jobs.get_job(kept.job_id)
    assert job.lease is not None
    assert job.lease.expires_at > await store.now() + timedelta(seconds=590)
    assert job.version == 2, "a heartbeat is no event"
    assert (await store.jobs.get_job(foreign.job_id)).lease is not None
    assert await store.leases.heartbeat([], ttl=30) == set()


async def test_a_heartbeat_marks_what_has_started(store: Store) -> None:
    begun, waiting = await started(store), await started(store)
    await store.leases.heartbeat([begun, waiting], ttl=30, started=[begun.job_id])
    await store.leases.heartbeat([begun, waiting], ttl=30)
    marks = [(await store.jobs.get_job(lease.job_id)).lease for lease in (begun, waiting)]
    assert [mark is not None and mark.started for mark in marks] == [True, False]


async def test_recording_renews_the_lease_and_marks_it_started(store: Store) -> None:
    lease = await started(store)
    await store.leases.heartbeat([lease], ttl=10)
    before = (await store.jobs.get_job(lease.job_id)).lease
    await passed(store, await store.now())
    await store.leases.record(lease, [event()])
    after = (await store.jobs.get_job(lease.job_id)).lease
    assert before is not None
    assert after is not None
    assert not before.started
    assert after.started
    assert before.expires_at < after.expires_at < await store.now() + timedelta(seconds=31)


async def test_a_started_loss_costs_a_retry_and_is_due_at_once(store: Store) -> None:
    lease = await started(store)
    await store.leases.record(lease, [event()])
    await run_out(store, lease)
    assert await store.leases.reap(worker_id=OTHER) == [Reaped(lease.job_id, S.RETRY, WORKER, "echo")]
    job = await store.jobs.get_job(lease.job_id)
    assert (job.status, job.attempt, job.retry_count) == (S.RETRY, 1, 1)
    [run] = await store.jobs.list_runs(job.id)
    assert (run.attempt, run.worker_id, run.outcome, run.error_kind) == (1, WORKER, S.RETRY, "lease_lost")
    assert run.started_at <= run.finished_at
    assert (await checked_log(store, job.id))[-1].type == "job_retrying"
    again = await claim(store, job.id, worker_id=OTHER)
    assert (again.lease.attempt, again.retry_count) == (2, 1)


async def test_an_unstarted_loss_is_free(store: Store) -> None:
    lease = await started(store, max_retries=0)
    await run_out(store, lease, started=False)
    assert await store.leases.reap(worker_id=OTHER) == [Reaped(lease.job_id, S.RETRY, WORKER, "echo")]
    again = await claim(store, lease.job_id)
    assert (again.retry_count, again.lost_starts) == (0, 1)
    assert await store.jobs.list_runs(lease.job_id) == [], "user code never ran"


async def test_started_losses_end_in_the_dead_letters(store: Store) -> None:
    lease = await started(store, max_retries=2)
    for retry_count in (1, 2):
        await run_out(store, lease)
        [reaped] = await store.leases.reap(worker_id=OTHER)
        assert reaped.status is S.RETRY
        again = await claim(store, lease.job_id)
        assert again.retry_count == retry_count
        lease = again.lease
    await run_out(store, lease)
    assert await store.leases.reap(worker_id=OTHER) == [Reaped(lease.job_id, S.DEADLETTER, WORKER, "echo")]
    job = await store.jobs.get_job(lease.job_id)
    assert (job.status, job.error_kind, job.retry_count) == (S.DEADLETTER, "lease_lost", 2)
    assert [run.attempt for run in await store.jobs.list_runs(job.id)] == [1, 2, 3]
    await checked_log(store, job.id)


async def test_only_the_first_crash_of_a_loop_is_free(store: Store) -> None:
    """A loss before the start may have been a start that was not recorded; from then on workers mark each attempt first."""
    lease = await started(store, max_retries=1)
    for begun, retries in ((False, 0), (True, 1)):
        await run_out(store, lease, started=begun)
        await store.leases.reap(worker_id=OTHER)
        again = await claim(store, lease.job_id)
        assert (again.retry_count, again.lost_starts) == (retries, 1)
        lease = again.lease
    await run_out(store, lease)
    assert await store.leases.reap(worker_id=OTHER) == [Reaped(lease.job_id, S.DEADLETTER, WORKER, "echo")]


async def test_the_twentieth_unstarted_loss_is_the_last(store: Store) -> None:
    """A job that kills its worker before its code begins must not circle for ever."""
    lease = await started(store)
    for lost in range(1, MAX_LOST_STARTS + 1):
        await run_out(store, lease, started=False)
        [reaped] = await store.leases.reap(worker_id=OTHER)
        if lost < MAX_LOST_STARTS:
            assert reaped.status is S.RETRY
            again = await claim(store, lease.job_id)
            assert again.lost_starts == lost
            lease = again.lease
        else:
            assert reaped.status is S.DEADLETTER
    job = await store.jobs.get_job(lease.job_id)
    assert (job.error_kind, job.retry_count, job.attempt) == ("lease_lost", 0, MAX_LOST_STARTS)
    await checked_log(store, job.id)


async def test_a_cancel_request_that_outlives_its_worker_is_honoured(store: Store) -> None:
    for waiting, begun in product([False, True], repeat=2):
        with case(waiting, begun):
            lease = await started(store, max_retries=0)
            if waiting:
                await store.leases.set_waiting(lease, True)
            assert await store.jobs.cancel(lease.job_id, note=NOTE) is (S.WAITING if waiting else S.RUNNING)
            await run_out(store, lease, started=begun)
            assert await store.leases.reap(worker_id=OTHER) == [Reaped(lease.job_id, S.CANCELLED, WORKER, "echo")]
            job = await store.jobs.get_job(lease.job_id)
            assert (job.status, job.note["reason"]) == (S.CANCELLED, "because")
            await checked_log(store, job.id)


async def test_a_waiting_job_is_taken_over_too(store: Store) -> None:
    lease = await started(store)
    await store.leases.set_waiting(lease, True)
    await run_out(store, lease)
    [reaped] = await store.leases.reap(worker_id=OTHER)
    assert reaped.status is S.RETRY
    await checked_log(store, lease.job_id)
    assert await claimable(store, lease.job_id)


async def test_live_leases_are_not_reaped(store: Store) -> None:
    lease = await started(store)
    assert await store.leases.reap(worker_id=OTHER) == []
    await store.leases.finish(lease, outcome(S.COMPLETED))


async def test_reaping_takes_at_most_its_limit(store: Store) -> None:
    leases = [await started(store) for _ in range(5)]
    await run_out(store, *leases)
    taken = [await store.leases.reap(worker_id=OTHER, limit=2) for _ in range(4)]
    assert [len(batch) for batch in taken] == [2, 2, 1, 0]
    assert {r.job_id for batch in taken for r in batch} == {lease.job_id for lease in leases}


async def test_two_reapers_never_reap_the_same_job(file_store: Store, twin: Store) -> None:
    leases = [await started(file_store) for _ in range(30)]
    await run_out(file_store, *leases)
    batches = await asyncio.gather(
        *(s.leases.reap(worker_id=OTHER, limit=20) for s in (file_store, twin) for _ in range(3))
    )
    reaped = [r.job_id for batch in batches for r in batch]
    assert sorted(reaped) == sorted(lease.job_id for lease in leases)
    for lease in leases:
        await checked_log(file_store, lease.job_id)


async def test_finishing_and_reaping_at_once_happen_once(file_store: Store, twin: Store) -> None:
    """The first commit wins; the other call finds nothing left to do."""
    for _ in range(20):
        lease = await started(file_store)
        await file_store.leases.heartbeat([lease], ttl=0.002)
        ended, reaped = await asyncio.gather(
            file_store.leases.finish(lease, outcome(S.COMPLETED)),
            twin.leases.reap(worker_id=OTHER),
            return_exceptions=True,
        )
        assert not isinstance(reaped, BaseException)
        taken = [r for r in reaped if r.job_id == lease.job_id]
        assert isinstance(ended, LeaseLost) or (ended is S.COMPLETED and taken == [])
        await checked_log(file_store, lease.job_id)


async def test_cancel_requests_are_shown_to_their_holder_only(store: Store) -> None:
    asked, other, dead, calm = [await started(store) for _ in range(4)]
    foreign = await claim(store, (await started_elsewhere(store)).job_id, worker_id=OTHER)
    for lease in (asked, other, dead, foreign.lease):
        await store.jobs.cancel(lease.job_id, note=NOTE)
    await run_out(store, dead)
    shown = await store.leases.cancel_requests(WORKER)
    assert sorted(shown, key=lambda lease: lease.job_id) == [asked, other]
    assert await store.leases.cancel_requests(OTHER) == [foreign.lease]
    assert await store.leases.cancel_requests("nobody") == []
    assert (await store.jobs.get_job(calm.job_id)).status is S.RUNNING


async def started_elsewhere(store: Store) -> Lease:
    """A job that was claimed and handed back."""
    lease = await started(store)
    await store.leases.finish(lease, Outcome(S.RETRY))
    return lease


async def test_a_leased_job_cannot_be_made_due(store: Store) -> None:
    lease = await started(store)
    with pytest.raises(IllegalTransition):
        await store.jobs.retry_now(lease.job_id, note=NOTE)
