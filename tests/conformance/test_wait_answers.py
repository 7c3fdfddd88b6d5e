"""An answer wakes a suspended job, whatever gives it and whenever it comes: before, during or after the suspension."""

import asyncio

import pytest

from perdure.model.effects import close_wait, open_wait
from perdure.model.jobs import Lease, Outcome, Wait
from perdure.model.states import Status
from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell, open_shell
from tests.conformance.support import HOUR, S, approve, claimable, event, later, near, new_approval, started

SUSPENDED = pytest.mark.parametrize("suspended", [S.PARKED, S.WAITING_FOR_APPROVAL])


async def open_waits(store: Store, lease: Lease, *waits: Wait) -> None:
    await store.leases.record(
        lease, [event("wait_started", f'{{"key": "{w.key}"}}') for w in waits], effects=[open_wait(w) for w in waits]
    )


def answered(shell: Shell, lease: Lease, key: str = "x", seconds_ago: float = 0) -> str:
    moment = shell.ago(seconds_ago)
    return f"update job_waits set answered_at = {moment} where job_id = {shell.id(lease.job_id)} and key = '{key}'"


@SUSPENDED
async def test_an_answer_wakes_it(file_store: Store, shell: Shell, suspended: Status) -> None:
    lease = await started(file_store)
    waits = [Wait("x", "flag", None, "a"), Wait("y", "flag", await later(file_store, HOUR), "b")]
    await open_waits(file_store, lease, *waits)
    await file_store.leases.finish(lease, Outcome(suspended))
    assert not await claimable(file_store, lease.job_id)
    await shell.run(answered(shell, lease))
    job = await file_store.jobs.get_job(lease.job_id)
    assert near(job.due_at, await file_store.now())
    assert {w.key: w.answered_at is not None for w in job.waits} == {"x": True, "y": False}
    assert await claimable(file_store, lease.job_id)


@SUSPENDED
async def test_an_answer_that_was_there_before_wakes_it_at_once(
    file_store: Store, shell: Shell, suspended: Status
) -> None:
    lease = await started(file_store)
    await open_waits(file_store, lease, Wait("x", "flag", await later(file_store, HOUR), "a"))
    await shell.run(answered(shell, lease))
    await file_store.leases.finish(lease, Outcome(suspended))
    assert await claimable(file_store, lease.job_id)


async def test_an_answer_to_a_job_that_runs_wakes_nothing(file_store: Store, shell: Shell) -> None:
    for waiting in (False, True):
        lease = await started(file_store)
        await open_waits(file_store, lease, Wait("x", "flag"))
        await file_store.leases.set_waiting(lease, waiting)
        await shell.run(answered(shell, lease))
        assert (await file_store.jobs.get_job(lease.job_id)).due_at is None
        wait = await file_store.leases.read_wait(lease, "flag", "x")
        assert wait is not None
        assert near(wait.answered_at, await file_store.now())


async def test_an_answer_does_not_put_off_what_is_due_before(file_store: Store, shell: Shell) -> None:
    lease = await started(file_store)
    await open_waits(file_store, lease, Wait("x", "flag"), Wait("nap", "timer", await later(file_store, -HOUR)))
    await file_store.leases.finish(lease, Outcome(S.PARKED))
    before = (await file_store.jobs.get_job(lease.job_id)).due_at
    await shell.run(answered(shell, lease, seconds_ago=-60))
    assert (await file_store.jobs.get_job(lease.job_id)).due_at == before


async def test_a_wait_is_read_by_its_holder(file_store: Store, neighbour: Store) -> None:
    lease, until = await started(file_store), await later(file_store, HOUR)
    wait = Wait("x", "flag", until, "invoice-7")
    await open_waits(file_store, lease, wait)
    assert await file_store.leases.read_wait(lease, "flag", "x") == wait
    assert await file_store.leases.read_wait(lease, "flag", "y") is None
    assert await neighbour.leases.read_wait(lease, "flag", "x") is None
    await file_store.leases.record(lease, [], effects=[close_wait("flag", "x")])
    assert await file_store.leases.read_wait(lease, "flag", "x") is None


async def test_a_wait_that_is_opened_again_keeps_its_answer(file_store: Store, shell: Shell) -> None:
    lease = await started(file_store)
    await open_waits(file_store, lease, Wait("x", "flag", None, "a"))
    await shell.run(answered(shell, lease))
    found = await file_store.leases.read_wait(lease, "flag", "x")
    assert found is not None
    assert found.answered_at is not None
    await open_waits(file_store, lease, Wait("x", "flag", None, "a"))
    assert await file_store.leases.read_wait(lease, "flag", "x") == found
    for other in (Wait("x", "flag", None, "b"), Wait("x", "flag", None, None)):
        await shell.run(answered(shell, lease))
        await open_waits(file_store, lease, other)
        assert await file_store.leases.read_wait(lease, "flag", "x") == other
    await shell.run(answered(shell, lease))
    of_another_kind = Wait("x", "other", None, "b")
    await open_waits(file_store, lease, of_another_kind)
    assert await file_store.leases.read_wait(lease, "other", "x") == of_another_kind
    found = await file_store.leases.read_wait(lease, "flag", "x")
    assert found is not None
    assert found.answered_at is not None


# -- approvals: the decision answers their wait -----------------------------------------------------------------------------


async def test_each_decision_answers_the_wait_of_its_approval(file_store: Store, shell: Shell) -> None:
    by_hand = "update approvals set status = '{}', decided_at = {} where id = {}"
    for decision in ("approve", "deny", "APPROVED", "DENIED", "EXPIRED", "CANCELLED"):
        lease = await started(file_store)
        asked = await file_store.approvals.request_approval(lease, new_approval(on_deny="resume"))
        other = await file_store.approvals.request_approval(lease, new_approval(key="other"))
        await file_store.leases.finish(lease, Outcome(S.WAITING_FOR_APPROVAL))
        assert not await claimable(file_store, lease.job_id)
        if decision.islower():
            await file_store.approvals.decide(approve(asked, verdict=decision))
        else:
            await shell.run(by_hand.format(decision, shell.ago(0), shell.id(asked.id)))
        job = await file_store.jobs.get_job(lease.job_id)
        assert {w.subject_id: w.answered_at is not None for w in job.waits} == {
            str(asked.id): True,
            str(other.id): False,
        }
        assert near(job.due_at, await file_store.now())
        assert await claimable(file_store, lease.job_id)


@pytest.mark.parametrize("answer_first", [True, False])
@pytest.mark.parametrize("what", ["wait", "approval"])
async def test_an_answer_in_a_transaction_that_overlaps_with_the_suspension(
    postgres_url: str, what: str, answer_first: bool
) -> None:
    """Neither sees what the other has not committed yet, and still the job wakes."""
    store = await open_store(postgres_url)
    lease = await started(store)
    asked = await store.approvals.request_approval(lease, new_approval(key="x"))
    async with open_shell(postgres_url) as one, open_shell(postgres_url) as two:
        answer = f"update approvals set status = 'APPROVED', decided_at = now() where id = {one.id(asked.id)}"
        if what == "wait":
            answer = answered(one, lease)
        suspend = f"update jobs set status = 'PARKED' where id = {one.id(lease.job_id)}"
        first, second = (answer, suspend) if answer_first else (suspend, answer)
        await one.run("begin")
        await one.run(first)
        following = asyncio.create_task(two.run(second))
        await asyncio.sleep(0.2)
        assert not following.done()  # it waits for the row of the wait
        await one.run("commit")
        await following
    job = await store.jobs.get_job(lease.job_id)
    assert (job.status, job.waits[0].answered_at is not None) == (S.PARKED, True)
    assert near(job.due_at, await store.now())
    assert await claimable(store, lease.job_id)
    await store.close()
