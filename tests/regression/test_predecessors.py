"""Defects that earlier systems of this kind shipped, each as the test that would have caught it.

The promises themselves are tested in tests/conformance; here stand the ways in which they were broken elsewhere.
"""

import asyncio

import pytest

from perdure.model.effects import open_wait
from perdure.model.errors import IllegalTransition, LeaseLost
from perdure.model.jobs import JobFilter, Outcome, Wait
from perdure.store.follow import follow
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell
from tests.conformance.support import (
    HOUR,
    KINDS,
    NOTE,
    OTHER,
    WORKER,
    S,
    approve,
    asked,
    case,
    checked_log,
    claim,
    claimable,
    deny,
    enqueue,
    event,
    later,
    lease_of,
    new_approval,
    new_job,
    outcome,
    run_out,
    run_to,
    started,
)


async def test_a_suspended_job_is_not_claimed_again_and_again(store: Store) -> None:
    """Claiming looked at the last event only: jobs that waited flapped to running each lease period."""
    for status in (S.PARKED, S.WAITING_FOR_APPROVAL):
        job_id = await run_to(store, status)
        for _ in range(3):
            assert not await claimable(store, job_id)
        assert (await store.jobs.get_job(job_id)).attempt == 1


async def test_an_event_of_the_last_moment_does_not_revive_a_finished_job(store: Store) -> None:
    """A decision that arrived after the end made the job look alive, and it ran again."""
    question = await asked(store)
    await store.jobs.cancel(question.job_id, note=NOTE, force=True)
    for call in (store.approvals.decide(approve(question)), store.jobs.append(question.job_id, 4, event())):
        with pytest.raises(Exception, match=r"already|cannot"):
            await call
    assert not await claimable(store, question.job_id)
    assert (await checked_log(store, question.job_id))[-1].type == "job_cancelled"


async def test_rejecting_is_not_approving(store: Store) -> None:
    """Both decisions wrote the same event, so a rejected job went on."""
    question = await asked(store)
    await store.leases.finish(await lease_of(store, question.job_id), Outcome(S.WAITING_FOR_APPROVAL))
    await store.approvals.decide(deny(question))
    assert (await store.jobs.get_job(question.job_id)).status is S.FAILED


async def test_an_approved_job_really_resumes(store: Store) -> None:
    """The decision set a status that the runner refused to start from."""
    question = await asked(store)
    await store.leases.finish(await lease_of(store, question.job_id), Outcome(S.WAITING_FOR_APPROVAL))
    await store.approvals.decide(approve(question))
    again = await claim(store, question.job_id)
    assert await store.leases.finish(again.lease, outcome(S.COMPLETED)) is S.COMPLETED


async def test_completing_wins_over_what_arrives_meanwhile(store: Store) -> None:
    """A message that arrived during completion caused a version conflict; the result was dropped and the job ran twice."""
    for n in range(20):
        question = await asked(store)
        lease = await lease_of(store, question.job_id)
        calls = [store.approvals.decide(approve(question)), store.leases.finish(lease, outcome(S.COMPLETED))]
        done = await asyncio.gather(*(calls[:: 1 if n % 2 else -1]), return_exceptions=True)
        assert S.COMPLETED in done
        assert [e.type for e in await checked_log(store, question.job_id)][-1] == "job_completed"


async def test_a_cancel_is_written_although_its_job_was_stopped(store: Store) -> None:
    """The event was written with a context that was cancelled already: row and log disagreed for ever."""
    lease = await started(store)
    await store.jobs.cancel(lease.job_id, note=NOTE)
    await store.leases.finish(lease, outcome(S.CANCELLED))
    assert [e.type for e in await checked_log(store, lease.job_id)][-2:] == ["cancel_requested", "job_cancelled"]
    assert not await claimable(store, lease.job_id)


async def test_cancelling_and_completing_at_once_end_in_one_state(store: Store) -> None:
    for force in (False, True) * 10:
        with case("force" if force else "ask"):
            lease = await started(store)
            cancelled, done = await asyncio.gather(
                store.jobs.cancel(lease.job_id, note=NOTE, force=force),
                store.leases.finish(lease, outcome(S.COMPLETED)),
                return_exceptions=True,
            )
            status = (await store.jobs.get_job(lease.job_id)).status
            if status is S.COMPLETED:
                assert done is S.COMPLETED
                assert cancelled is S.RUNNING or isinstance(cancelled, IllegalTransition)
            else:
                assert (status, cancelled) == (S.CANCELLED, S.CANCELLED)
                assert isinstance(done, LeaseLost)
            await checked_log(store, lease.job_id)


async def test_a_retried_job_does_not_wait_for_its_old_lease(store: Store) -> None:
    """Leases were never released: a requeued job waited up to the full lease before it could be claimed."""
    lease = await started(store)
    await store.leases.finish(lease, Outcome(S.RETRY, uses_retry=True))
    assert (await claim(store, lease.job_id, worker_id=OTHER)).lease.attempt == 2


async def test_backing_off_holds_no_lease(store: Store) -> None:
    """Backoff was a sleep inside the worker's slot."""
    job_id = await run_to(store, S.RETRY)
    job = await store.jobs.get_job(job_id)
    assert job.lease is None
    assert job.due_at is not None


async def test_a_flood_of_events_reaches_a_slow_follower_whole(store: Store) -> None:
    """The watch dropped events when its buffer was full, while its cursor went on."""
    lease = await started(store)
    seen: list[int] = []

    async def watch() -> None:
        async for e in follow(store, lease.job_id):
            seen.append(e.version)
            if e.version % 100 == 0:
                await asyncio.sleep(0.002)

    watching = asyncio.create_task(watch())
    for _ in range(25):
        await store.leases.record(lease, [event() for _ in range(100)])
    await store.leases.finish(lease, outcome(S.COMPLETED))
    async with asyncio.timeout(20):
        await watching
    assert seen == list(range(1, 2504))


async def test_two_workers_of_one_name_do_not_share_a_lease(store: Store) -> None:
    """Worker ids were host names: two workers on one host renewed each other's leases."""
    old = await started(store)
    await run_out(store, old)
    await store.leases.reap(worker_id=WORKER)
    new = (await claim(store, old.job_id, worker_id=WORKER)).lease
    assert await store.leases.heartbeat([old], ttl=600) == set()
    assert await store.leases.heartbeat([old, new], ttl=600) == {new.job_id}
    with pytest.raises(LeaseLost):
        await store.leases.finish(old, outcome(S.COMPLETED))


async def test_a_stale_and_a_live_heartbeat_of_the_same_job_renew_it_once(store: Store) -> None:
    lease = await started(store)
    assert await store.leases.heartbeat([lease, lease], ttl=60) == {lease.job_id}


async def test_parked_jobs_are_not_in_the_way(store: Store) -> None:
    """Parked jobs were scanned by every claim."""
    for _ in range(30):
        await run_to(store, S.WAITING_FOR_APPROVAL, queue="q", priority=9)
    job_id = await enqueue(store, queue="q", priority=1)
    assert [job.id for job in await store.leases.claim(worker_id=WORKER, queue="q", kinds=KINDS, limit=10, ttl=30)] == [
        job_id
    ]


async def test_the_same_timer_set_again_moves(store: Store) -> None:
    """A wait's expiry was written into an event that nothing read."""
    lease = await started(store)
    await store.leases.record(lease, [], effects=[open_wait(Wait("nap", "timer", await later(store, HOUR)))])
    await store.leases.record(lease, [], effects=[open_wait(Wait("nap", "timer", await later(store, -1)))])
    await store.leases.finish(lease, Outcome(S.PARKED))
    assert await claimable(store, lease.job_id)


async def test_a_question_outlives_attempts_and_is_answered_once(store: Store) -> None:
    """A re-run after the approval asked again, or used the grant twice."""
    lease = await started(store)
    question = await store.approvals.request_approval(lease, new_approval("publish"))
    await store.approvals.decide(approve(question))
    for _ in range(3):
        await store.leases.finish(lease, Outcome(S.RETRY))
        lease = (await claim(store, lease.job_id)).lease
        assert (await store.approvals.request_approval(lease, new_approval("publish"))).decided_by == "ann"
    assert len((await store.approvals.list_approvals(job_id=lease.job_id)).items) == 1


async def test_job_and_queue_row_are_stored_together(file_store: Store, shell: Shell) -> None:
    """Status, queue and log lived in stores that were written one after the other."""
    await file_store.jobs.enqueue_many([new_job() for _ in range(50)])
    for table in ("jobs", "job_queue", "job_events"):
        [row] = await shell.run(f"select count(*) as n from {table}")
        assert row["n"] == 50


async def test_counting_never_counts_what_has_ended(store: Store) -> None:
    """Completed jobs used up the limit of parallel jobs."""
    for _ in range(3):
        await run_to(store, S.COMPLETED)
    await run_to(store, S.RUNNING)
    counted = await store.jobs.count_jobs(JobFilter(statuses=(S.RUNNING, S.WAITING)), by="status")
    assert counted == {"RUNNING": 1}
