"""Cancel and retry now: what people do to jobs from outside."""

from itertools import product

import pytest

from perdure.model.errors import IllegalTransition, LeaseLost
from perdure.model.states import Status
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell
from tests.conformance.support import (
    HOUR,
    NOTE,
    OTHER,
    S,
    case,
    checked_log,
    claimable,
    enqueue,
    event,
    lease_of,
    near,
    new_approval,
    outcome,
    run_out,
    run_to,
    started,
)

UNLEASED = [s for s in Status if not s.terminal and not s.leased]
LEASED = [S.RUNNING, S.WAITING]
TERMINAL = [s for s in Status if s.terminal]


async def test_no_worker_holds_it_so_it_is_cancelled_at_once(store: Store) -> None:
    for status, force in product(UNLEASED, [False, True]):
        with case(status, force):
            job_id = await run_to(store, status)
            assert await store.jobs.cancel(job_id, note=NOTE, force=force) is S.CANCELLED
            job = await store.jobs.get_job(job_id)
            assert (job.note["actor"], job.note["reason"]) == ("ann", "because")
            last = (await checked_log(store, job_id))[-1]
            assert (last.type, last.previous_status, last.payload["reason"]) == ("job_cancelled", status, "because")
            assert not await claimable(store, job_id)


@pytest.mark.parametrize("status", LEASED)
async def test_a_holder_is_asked_and_only_once(store: Store, status: Status) -> None:
    job_id = await run_to(store, status)
    lease = await lease_of(store, job_id)
    for _ in range(3):
        assert await store.jobs.cancel(job_id, note=NOTE) is status
    job = await store.jobs.get_job(job_id)
    assert job.lease is not None
    assert near(job.lease.cancel_requested_at, await store.now())
    await store.leases.record(lease, [event()])
    asked = [e for e in await checked_log(store, job_id) if e.type == "cancel_requested"]
    assert [e.payload["reason"] for e in asked] == ["because"]
    assert await store.leases.cancel_requests(lease.worker_id) == [lease]
    assert await store.leases.finish(lease, outcome(S.CANCELLED)) is S.CANCELLED
    await checked_log(store, job_id)


async def test_force_does_not_ask(store: Store) -> None:
    for status, asked_before in product(LEASED, [False, True]):
        with case(status, asked_before):
            job_id = await run_to(store, status)
            lease = await lease_of(store, job_id)
            if asked_before:
                await store.jobs.cancel(job_id, note=NOTE)
            assert await store.jobs.cancel(job_id, note=NOTE, force=True) is S.CANCELLED
            with pytest.raises(LeaseLost):
                await store.leases.record(lease, [event()])
            with pytest.raises(LeaseLost):
                await store.leases.finish(lease, outcome(S.COMPLETED))
            assert (await checked_log(store, job_id))[-1].payload["reason"] == "because"
            assert await store.leases.reap(worker_id=OTHER) == []


@pytest.mark.parametrize("status", LEASED)
async def test_a_holder_whose_lease_ran_out_is_not_asked(store: Store, status: Status) -> None:
    job_id = await run_to(store, status)
    await run_out(store, await lease_of(store, job_id))
    assert await store.jobs.cancel(job_id, note=NOTE) is S.CANCELLED
    await checked_log(store, job_id)
    assert await store.leases.reap(worker_id=OTHER) == []


async def test_terminal_is_terminal(store: Store) -> None:
    for status, force in product(TERMINAL, [False, True]):
        with case(status, force):
            job_id = await run_to(store, status)
            before = await checked_log(store, job_id)
            if status is S.CANCELLED:
                assert await store.jobs.cancel(job_id, note=NOTE, force=force) is S.CANCELLED
            else:
                with pytest.raises(IllegalTransition):
                    await store.jobs.cancel(job_id, note=NOTE, force=force)
            assert await checked_log(store, job_id) == before


async def test_a_request_that_no_worker_answers_is_carried_out_after_ten_seconds(
    file_store: Store, shell: Shell
) -> None:
    ignored, recent = await started(file_store), await started(file_store)
    for lease in (ignored, recent):
        await file_store.jobs.cancel(lease.job_id, note=NOTE)
    for lease, seconds in ((ignored, 11), (recent, 8)):
        await shell.run(
            f"update job_claims set cancel_requested_at = {shell.ago(seconds)} where job_id = {shell.id(lease.job_id)}"
        )
    reaped = await file_store.leases.reap(worker_id=OTHER)
    assert [(r.job_id, r.status) for r in reaped] == [(ignored.job_id, S.CANCELLED)]
    assert (await checked_log(file_store, ignored.job_id))[-1].payload["reason"] == "because"
    with pytest.raises(LeaseLost):
        await file_store.leases.finish(ignored, outcome(S.COMPLETED))
    assert await file_store.leases.finish(recent, outcome(S.COMPLETED)) is S.COMPLETED


async def test_cancelling_closes_the_question(store: Store) -> None:
    lease = await started(store)
    asked = await store.approvals.request_approval(lease, new_approval())
    await store.jobs.cancel(lease.job_id, note=NOTE, force=True)
    assert (await store.approvals.get_approval(asked.id)).status.value == "CANCELLED"
    await checked_log(store, lease.job_id)


# Retry now ------------------------------------------------------------------------------------------------------------


async def test_a_retry_becomes_due_now(store: Store) -> None:
    job_id = await run_to(store, S.RETRY)
    await store.jobs.retry_now(job_id, note=NOTE)
    job, now = await store.jobs.get_job(job_id), await store.now()
    assert near(job.due_at, now)
    assert near(job.next_retry_at, now)
    last = (await checked_log(store, job_id))[-1]
    assert (last.type, last.new_status, last.payload["actor"]) == ("made_due", None, "ann")
    assert job.retry_count == 0
    assert await claimable(store, job_id)
    await checked_log(store, job_id)


async def test_a_delayed_job_becomes_due_now(store: Store) -> None:
    job_id = await enqueue(store, delay=HOUR)
    await store.jobs.retry_now(job_id, note=NOTE)
    job = await store.jobs.get_job(job_id)
    assert near(job.due_at, await store.now())
    assert (await checked_log(store, job_id))[-1].type == "made_due"
    assert await claimable(store, job_id)


@pytest.mark.parametrize("status", [S.PENDING, S.RETRY])
async def test_a_job_already_due_is_left_as_it_is(store: Store, status: Status) -> None:
    job_id = await run_to(store, status)
    await store.jobs.retry_now(job_id, note=NOTE)
    before = await store.jobs.get_job(job_id), await checked_log(store, job_id)
    await store.jobs.retry_now(job_id, note=NOTE)
    assert (await store.jobs.get_job(job_id), await checked_log(store, job_id)) == before
    assert [e.type for e in before[1]].count("made_due") == (status is S.RETRY)


async def test_in_other_states_there_is_nothing_to_make_due(store: Store) -> None:
    for status in [s for s in Status if s not in {S.PENDING, S.RETRY}]:
        with case(status):
            job_id = await run_to(store, status)
            before = await store.jobs.get_job(job_id), await checked_log(store, job_id)
            with pytest.raises(IllegalTransition):
                await store.jobs.retry_now(job_id, note=NOTE)
            assert (await store.jobs.get_job(job_id), await checked_log(store, job_id)) == before
