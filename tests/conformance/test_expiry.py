"""What happens by itself, and what a decision does to a job in each state it may be in; nothing is ever missed."""

import asyncio
from itertools import product
from typing import Any

import pytest

from perdure.model.approvals import Approval, ApprovalStatus
from perdure.model.effects import close_wait, open_wait
from perdure.model.errors import ApprovalExpired
from perdure.model.jobs import Outcome, Wait
from perdure.model.states import Status
from perdure.store.protocol import Store
from tests.conformance.support import (
    HOUR,
    S,
    approve,
    case,
    checked_log,
    claim,
    claimable,
    deny,
    later,
    lease_of,
    near,
    new_approval,
    outcome,
    passed,
    run_to,
    started,
)

SUSPENDED = [S.PARKED, S.WAITING_FOR_APPROVAL]
STATES = [S.RUNNING, S.WAITING, S.RETRY, *SUSPENDED]


async def asked_in(store: Store, status: Status, **changes: Any) -> Approval:
    """A question of a job that has moved on to this state since."""
    lease = await started(store)
    asked = await store.approvals.request_approval(lease, new_approval(**changes))
    if status is S.WAITING:
        await store.leases.set_waiting(lease, True)
    elif status is not S.RUNNING:
        await store.leases.finish(lease, outcome(status))
    return asked


# Decisions ------------------------------------------------------------------------------------------------------------


async def test_a_decision_wakes_who_is_suspended_on_it(store: Store) -> None:
    for status, decide in product(SUSPENDED, [approve, deny]):
        with case(status, decide):
            asked = await asked_in(store, status, on_deny="resume")
            await store.approvals.decide(decide(asked))
            job = await store.jobs.get_job(asked.job_id)
            assert job.status is status, "decided but not yet claimed: it shows as waiting for a worker"
            assert near(job.due_at, await store.now())
            await claim(store, job.id)
            await checked_log(store, job.id)


@pytest.mark.parametrize("status", SUSPENDED)
async def test_a_denial_fails_who_is_suspended_on_it(store: Store, status: Status) -> None:
    asked = await asked_in(store, status, on_deny="fail")
    await store.approvals.decide(deny(asked))
    job = await store.jobs.get_job(asked.job_id)
    assert (job.status, job.error_kind) == (S.FAILED, "denied")
    decided, failed = (await checked_log(store, job.id))[-2:]
    assert (decided.type, failed.type) == ("approval_decided", "job_failed")
    assert failed.payload["error_kind"] == "denied"
    assert (await store.approvals.get_approval(asked.id)).status is ApprovalStatus.DENIED
    assert not await claimable(store, job.id)


async def test_the_holder_finds_a_decision_made_meanwhile(store: Store) -> None:
    for status, decide in product([S.RUNNING, S.WAITING], [approve, deny]):
        with case(status, decide):
            asked = await asked_in(store, status)
            await store.approvals.decide(decide(asked))
            job = await store.jobs.get_job(asked.job_id)
            assert (job.status, job.due_at) == (status, None)
            assert (await checked_log(store, job.id))[-1].type == "approval_decided"
            await store.leases.finish(await lease_of(store, job.id), Outcome(S.PARKED))
            assert await claimable(store, job.id)
            await checked_log(store, job.id)


async def test_a_decision_while_its_job_backs_off_does_not_hurry_it(store: Store) -> None:
    asked = await asked_in(store, S.RETRY)
    await store.approvals.decide(approve(asked))
    job = await store.jobs.get_job(asked.job_id)
    assert job.status is S.RETRY
    assert not await claimable(store, job.id)
    await checked_log(store, job.id)


async def test_a_question_that_is_no_longer_awaited_moves_nothing(store: Store) -> None:
    """The handler went on without the answer, and sleeps: neither verdict is about what it does now."""
    for decide in (approve, deny):
        with case(decide):
            lease, until = await started(store), await later(store, HOUR)
            asked = await store.approvals.request_approval(lease, new_approval())
            await store.leases.record(
                lease, [], effects=[close_wait("approval", "ok"), open_wait(Wait("nap", "timer", until))]
            )
            await store.leases.finish(lease, Outcome(S.PARKED))
            await store.approvals.decide(decide(asked))
            job = await store.jobs.get_job(lease.job_id)
            assert job.status is S.PARKED
            assert near(job.due_at, until, within=0.01)
            await checked_log(store, job.id)


async def test_a_decision_keeps_an_earlier_alarm(store: Store) -> None:
    """Waking never moves a due time later."""
    lease = await started(store)
    asked = await store.approvals.request_approval(lease, new_approval())
    await store.leases.record(lease, [], effects=[open_wait(Wait("nap", "timer", await later(store, -1)))])
    await store.leases.finish(lease, Outcome(S.PARKED))
    before = (await store.jobs.get_job(lease.job_id)).due_at
    await store.approvals.decide(approve(asked))
    after = (await store.jobs.get_job(lease.job_id)).due_at
    assert before is not None
    assert after is not None
    assert after <= before


@pytest.mark.parametrize("status", SUSPENDED)
async def test_a_decision_that_races_with_the_suspension_is_never_lost(store: Store, status: Status) -> None:
    for n in range(50):
        lease = await started(store)
        asked = await store.approvals.request_approval(lease, new_approval())
        both = [store.approvals.decide(approve(asked)), store.leases.finish(lease, Outcome(status))]
        await asyncio.gather(*(both if n % 2 else both[::-1]))
        assert near((await store.jobs.get_job(lease.job_id)).due_at, await store.now())
        await claim(store, lease.job_id)


async def test_nor_when_they_come_from_two_instances(file_store: Store, twin: Store) -> None:
    for n in range(50):
        lease = await started(file_store)
        asked = await file_store.approvals.request_approval(lease, new_approval())
        both = [twin.approvals.decide(approve(asked)), file_store.leases.finish(lease, Outcome(S.WAITING_FOR_APPROVAL))]
        await asyncio.gather(*(both if n % 2 else both[::-1]))
        await claim(twin, lease.job_id)


async def test_a_denial_that_races_with_the_suspension_is_never_lost(file_store: Store, twin: Store) -> None:
    """Either the job fails at once, or it is woken to find the denial."""
    for n in range(30):
        lease = await started(file_store)
        asked = await file_store.approvals.request_approval(lease, new_approval())
        both = [twin.approvals.decide(deny(asked)), file_store.leases.finish(lease, Outcome(S.WAITING_FOR_APPROVAL))]
        await asyncio.gather(*(both if n % 2 else both[::-1]))
        job = await file_store.jobs.get_job(lease.job_id)
        assert job.status is S.FAILED or await claimable(file_store, lease.job_id)
        await checked_log(file_store, lease.job_id)


# Expiry of approvals --------------------------------------------------------------------------------------------------


async def test_a_question_runs_out(store: Store) -> None:
    for status, on_expiry in product(STATES, ["fail", "deny", "continue"]):
        with case(status, on_expiry):
            asked = await asked_in(store, status, expires_in=0.01, on_expiry=on_expiry)
            await passed(store, asked.expires_at)
            assert await store.leases.expire() >= 1
            assert await store.leases.expire() == 0
            expired = await store.approvals.get_approval(asked.id)
            assert (expired.status, expired.decided_by) == (ApprovalStatus.EXPIRED, None)
            assert expired.decided_at is not None
            log = await checked_log(store, asked.job_id)
            [said] = [e for e in log if e.type == "approval_decided"]
            assert (said.payload["approval"], said.payload["decision"]) == (str(asked.id), "EXPIRED")

            job = await store.jobs.get_job(asked.job_id)
            if status in SUSPENDED and on_expiry == "fail":
                assert (job.status, job.error_kind) == (S.FAILED, "expired")
                assert log[-1].type == "job_failed"
            else:
                assert job.status is status
                assert (status in SUSPENDED) == await claimable(store, job.id)
            with pytest.raises(ApprovalExpired):
                await store.approvals.decide(approve(asked))


async def test_only_what_ran_out_expires(store: Store) -> None:
    lasting, endless = await asked_in(store, S.PARKED, expires_in=HOUR), await asked_in(store, S.PARKED)
    assert await store.leases.expire() == 0
    for asked in (lasting, endless):
        assert (await store.approvals.get_approval(asked.id)).status is ApprovalStatus.PENDING
        assert not await claimable(store, asked.job_id)


async def test_what_expired_before_the_suspension_wakes_the_job(store: Store) -> None:
    lease = await started(store)
    asked = await store.approvals.request_approval(lease, new_approval(expires_in=0.001))
    await passed(store, asked.expires_at)
    await store.leases.expire()
    await store.leases.finish(lease, Outcome(S.WAITING_FOR_APPROVAL))
    assert await claimable(store, lease.job_id)


async def test_deciding_and_expiring_at_once_happen_once(file_store: Store, twin: Store) -> None:
    for _ in range(20):
        asked = await asked_in(file_store, S.WAITING_FOR_APPROVAL, expires_in=0.004)
        decided, _ = await asyncio.gather(
            twin.approvals.decide(approve(asked)), file_store.leases.expire(), return_exceptions=True
        )
        await passed(file_store, asked.expires_at)
        await file_store.leases.expire()
        stands = await file_store.approvals.get_approval(asked.id)
        assert stands.status is (ApprovalStatus.APPROVED if isinstance(decided, Approval) else ApprovalStatus.EXPIRED)
        log = await checked_log(file_store, asked.job_id)
        assert [e.type for e in log].count("approval_decided") == 1


# Deadlines of jobs ----------------------------------------------------------------------------------------------------


async def test_a_deadline_fails_a_job_that_no_worker_holds(store: Store) -> None:
    for status in (S.PENDING, S.RETRY, *SUSPENDED):
        with case(status):
            deadline = await later(store, 1.0)
            job_id = await run_to(store, status, deadline=deadline)
            safe = await run_to(store, status, deadline=await later(store, HOUR))
            assert await store.leases.expire() == 0
            await passed(store, deadline)
            assert await store.leases.expire() == 1
            job = await store.jobs.get_job(job_id)
            assert (job.status, job.error_kind) == (S.FAILED, "timeout")
            failed = (await checked_log(store, job_id))[-1]
            assert (failed.type, failed.previous_status) == ("job_failed", status)
            assert (await store.jobs.get_job(safe)).status is status
            assert await store.leases.expire() == 0


@pytest.mark.parametrize("status", [S.RUNNING, S.WAITING])
async def test_a_deadline_is_the_holders_business_while_it_holds(store: Store, status: Status) -> None:
    deadline = await later(store, 0.2)
    job_id = await run_to(store, status, deadline=deadline)
    await passed(store, deadline)
    assert await store.leases.expire() == 0
    assert (await store.jobs.get_job(job_id)).status is status


async def test_a_deadline_wakes_who_only_an_answer_would(store: Store) -> None:
    deadline = await later(store, HOUR)
    job_id = await run_to(store, S.WAITING_FOR_APPROVAL, deadline=deadline)
    assert near((await store.jobs.get_job(job_id)).due_at, deadline, within=0.01)


async def test_expiry_settles_at_most_its_limit(store: Store) -> None:
    deadline = await later(store, 0.3)
    ids = [await run_to(store, S.PENDING, deadline=deadline) for _ in range(5)]
    await passed(store, deadline)
    settled = [await store.leases.expire(limit=2) for _ in range(4)]
    assert sum(settled) == 5
    assert max(settled) <= 2
    assert {(await store.jobs.get_job(i)).status for i in ids} == {S.FAILED}
