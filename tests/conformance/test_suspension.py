"""When a suspended job wakes: its queue row is derived from its open waits, and no answer is ever missed."""

from datetime import datetime

import pytest

from perdure.model.effects import close_wait, open_wait
from perdure.model.jobs import Lease, Outcome, Wait
from perdure.model.states import TRANSITIONS, Status
from perdure.store.protocol import Store
from tests.conformance.support import (
    HOUR,
    S,
    approve,
    case,
    checked_log,
    claimable,
    event,
    later,
    near,
    new_approval,
    outcome,
    started,
)

ENDS = [s for s in Status if s in TRANSITIONS[S.RUNNING] and s.terminal]
SUSPENDED = pytest.mark.parametrize("suspended", [S.PARKED, S.WAITING_FOR_APPROVAL])


async def suspend(store: Store, lease: Lease, how: Status, *waits: Wait) -> datetime | None:
    """Open the waits, give the lease up, and return when the job is due."""
    await store.leases.record(
        lease, [event("wait_started", f'{{"key": "{w.key}"}}') for w in waits], effects=[open_wait(w) for w in waits]
    )
    assert await store.leases.finish(lease, Outcome(how)) is how
    await checked_log(store, lease.job_id)
    return (await store.jobs.get_job(lease.job_id)).due_at


@SUSPENDED
async def test_without_a_wait_it_is_due_now(store: Store, suspended: Status) -> None:
    lease = await started(store)
    assert near(await suspend(store, lease, suspended), await store.now())
    assert await claimable(store, lease.job_id)


@SUSPENDED
async def test_the_earliest_timer_wins(store: Store, suspended: Status) -> None:
    lease, soon = await started(store), await later(store, 600)
    timers = [Wait("late", "timer", await later(store, HOUR)), Wait("soon", "timer", soon), Wait("never", "timer")]
    assert near(await suspend(store, lease, suspended, *timers), soon, within=0.01)
    assert not await claimable(store, lease.job_id)
    waits = {w.key: w for w in (await store.jobs.get_job(lease.job_id)).waits}
    assert set(waits) == {"late", "soon", "never"}
    assert near(waits["soon"].until, soon, within=0.01)
    assert (waits["never"].until, waits["never"].kind) == (None, "timer")


@SUSPENDED
async def test_a_deadline_before_the_timer_wakes_it(store: Store, suspended: Status) -> None:
    deadline = await later(store, 600)
    lease = await started(store, deadline=deadline)
    nap = Wait("nap", "timer", await later(store, HOUR))
    assert near(await suspend(store, lease, suspended, nap), deadline, within=0.01)


@SUSPENDED
async def test_an_overdue_timer_wakes_it_at_once(store: Store, suspended: Status) -> None:
    lease = await started(store)
    await suspend(store, lease, suspended, Wait("nap", "timer", await later(store, -1)))
    assert await claimable(store, lease.job_id)


@SUSPENDED
async def test_where_only_an_answer_wakes_it_there_is_no_queue_row(store: Store, suspended: Status) -> None:
    lease = await started(store)
    await store.approvals.request_approval(lease, new_approval())
    assert await suspend(store, lease, suspended) is None
    assert not await claimable(store, lease.job_id)


@SUSPENDED
async def test_a_question_and_a_timer(store: Store, suspended: Status) -> None:
    lease, until = await started(store), await later(store, 600)
    await store.approvals.request_approval(lease, new_approval())
    assert near(await suspend(store, lease, suspended, Wait("nap", "timer", until)), until, within=0.01)


@SUSPENDED
async def test_a_decision_made_before_the_suspension_wakes_it(store: Store, suspended: Status) -> None:
    lease = await started(store)
    asked = await store.approvals.request_approval(lease, new_approval())
    await store.approvals.decide(approve(asked))
    assert near(await suspend(store, lease, suspended), await store.now())
    assert await claimable(store, lease.job_id)


@SUSPENDED
async def test_closed_waits_do_not_count(store: Store, suspended: Status) -> None:
    lease, until = await started(store), await later(store, 600)
    open_waits = [Wait("nap", "timer", await later(store, 1)), Wait("rest", "timer", until)]
    await store.leases.record(lease, [event()], effects=[open_wait(w) for w in open_waits])
    await store.leases.record(lease, [event()], effects=[close_wait("timer", "nap"), close_wait("timer", "unknown")])
    await store.leases.finish(lease, Outcome(suspended))
    assert near((await store.jobs.get_job(lease.job_id)).due_at, until, within=0.01)


async def test_waiting_becomes_parked_when_the_linger_ends(store: Store) -> None:
    lease, until = await started(store), await later(store, 600)
    await store.leases.set_waiting(lease, True)
    assert near(await suspend(store, lease, S.PARKED, Wait("nap", "timer", until)), until, within=0.01)
    job = await store.jobs.get_job(lease.job_id)
    assert (job.status, job.lease) == (S.PARKED, None)


async def test_the_end_closes_what_was_open(store: Store) -> None:
    for end in ENDS:
        with case(end):
            lease = await started(store)
            asked = await store.approvals.request_approval(lease, new_approval())
            await store.leases.record(lease, [], effects=[open_wait(Wait("nap", "timer", await later(store, HOUR)))])
            await store.leases.finish(lease, outcome(end))
            assert (await store.jobs.get_job(lease.job_id)).waits == ()
            assert (await store.approvals.get_approval(asked.id)).status.value == "CANCELLED"
