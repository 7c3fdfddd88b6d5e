"""Figures for dashboards: what is unfinished, who is asked, and what was answered."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from perdure.model.approvals import ApprovalStatus, Decide
from perdure.model.figures import LiveJobs
from perdure.model.jobs import Outcome
from perdure.model.states import TERMINAL, Status
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell
from tests.conformance.support import (
    HOUR,
    NOTE,
    S,
    asked,
    claim,
    enqueue,
    later,
    lease_of,
    new_approval,
    own_queue,
    passed,
    run_to,
    started,
)

LIVE = [s for s in Status if s not in TERMINAL]


async def live(store: Store) -> dict[tuple[str, str, Status], int]:
    return {(j.kind, j.queue, j.status): j.count for j in (await store.figures.snapshot()).jobs}


async def test_unfinished_jobs_are_counted_by_kind_queue_and_status(store: Store) -> None:
    for status in Status:
        for _ in range(2):
            await run_to(store, status, kind="k", queue=f"q-{status}")
        await run_to(store, status, kind="other", queue=f"q-{status}")
    expected = {("k", f"q-{s}", s): 2 for s in LIVE} | {("other", f"q-{s}", s): 1 for s in LIVE}
    assert await live(store) == expected


async def test_a_job_that_waits_for_several_things_counts_once(store: Store) -> None:
    lease = await started(store, kind="asks", queue="q")
    for key in ("one", "two"):
        await store.approvals.request_approval(lease, new_approval(key=key))
    await store.leases.finish(lease, Outcome(S.WAITING_FOR_APPROVAL))
    assert await live(store) == {("asks", "q", S.WAITING_FOR_APPROVAL): 1}
    assert (await store.figures.snapshot()).approvals_pending == 2


async def test_the_oldest_ready_job_is_the_one_that_has_been_due_longest(store: Store) -> None:
    queue = own_queue()
    await enqueue(store, queue=queue, delay=HOUR)
    [delayed] = (await store.figures.snapshot()).jobs
    assert delayed == LiveJobs("echo", queue, S.PENDING, 1, None), "it is not due"
    first = await store.jobs.get_job(await enqueue(store, queue=queue))
    await passed(store, await later(store, 0.01))
    await enqueue(store, queue=queue)
    [now] = (await store.figures.snapshot()).jobs
    assert now.count == 3
    assert now.oldest_ready is not None
    assert 0.01 <= now.oldest_ready <= (await store.now() - first.created_at).total_seconds()
    await claim(store, first.id)
    [pending] = [j for j in (await store.figures.snapshot()).jobs if j.status is S.PENDING]
    assert pending.count == 2
    assert pending.oldest_ready is not None, "the second one is due as well"


async def test_a_held_job_is_not_ready(store: Store) -> None:
    lease = await started(store)
    [held] = (await store.figures.snapshot()).jobs
    assert (held.status, held.oldest_ready) == (S.RUNNING, None)
    await store.leases.set_waiting(lease, True)
    [held] = (await store.figures.snapshot()).jobs
    assert (held.status, held.oldest_ready) == (S.WAITING, None)


async def test_pending_approvals_and_the_age_of_the_oldest(store: Store) -> None:
    nothing = await store.figures.snapshot()
    assert (nothing.jobs, nothing.approvals_pending, nothing.oldest_approval) == ((), 0, None)
    assert abs(nothing.at - await store.now()) < timedelta(seconds=5)
    first = await suspended(store)
    await passed(store, await later(store, 0.01))
    await suspended(store)
    two = await store.figures.snapshot()
    assert two.approvals_pending == 2
    assert two.oldest_approval is not None
    assert two.oldest_approval >= 0.01
    await store.approvals.decide(Decide("approve", "ann", "test", approval_id=first))
    one = await store.figures.snapshot()
    assert one.approvals_pending == 1
    second = (await store.approvals.list_approvals()).items[0]
    assert one.oldest_approval == pytest.approx((one.at - second.requested_at).total_seconds(), abs=0.5)


async def test_decided_tells_answers_and_expiries_but_no_closing(store: Store) -> None:
    began = await store.now()
    approved, denied, open_ = [await suspended(store) for _ in range(3)]
    expired = await suspended(store, expires_in=0.001, on_expiry="continue")
    closed = (await store.approvals.get_approval(await suspended(store))).job_id
    await store.jobs.cancel(closed, note=NOTE)
    await store.approvals.decide(Decide("approve", "ann", "phone", approval_id=approved))
    await store.approvals.decide(Decide("deny", "bo", "cli", approval_id=denied))
    await passed(store, (await store.approvals.get_approval(expired)).expires_at)
    await store.leases.expire()
    report = await store.figures.decided(began)
    assert [(d.approval_id, d.status, d.via) for d in report] == [
        (approved, ApprovalStatus.APPROVED, "phone"),
        (denied, ApprovalStatus.DENIED, "cli"),
        (expired, ApprovalStatus.EXPIRED, report[2].via),
    ]
    assert open_ not in {d.approval_id for d in report}
    for d in report:
        approval = await store.approvals.get_approval(d.approval_id)
        assert approval.decided_at == d.at
        assert abs((d.at - approval.requested_at).total_seconds() - d.waited) < 0.001
    assert await store.figures.decided(began, limit=1) == report[:1]
    assert await store.figures.decided(report[2].at) == [d for d in report if d.at >= report[2].at], "inclusive"
    assert await store.figures.decided(report[2].at + timedelta(microseconds=1000)) == []


async def test_figures_are_of_one_tenant(file_store: Store, neighbour: Store, shell: Shell) -> None:
    for status in LIVE:
        await run_to(neighbour, status)
    began = await file_store.now() - timedelta(seconds=60)
    other = await suspended(neighbour)
    await neighbour.approvals.decide(Decide("approve", "ann", "test", approval_id=other))
    assert (await file_store.figures.snapshot()).jobs == ()
    assert (await file_store.figures.snapshot()).approvals_pending == 0
    assert await file_store.figures.decided(began) == []
    assert len(await shell.run("select id from approvals")) == 2


async def test_a_claim_says_how_long_the_job_was_due(store: Store) -> None:
    job_id = await enqueue(store)
    job = await store.jobs.get_job(job_id)
    await passed(store, await later(store, 0.01))
    claimed = await claim(store, job_id)
    assert abs(claimed.waited - (claimed.claimed_at - job.run_at).total_seconds()) < 0.001
    assert claimed.waited >= 0.01


async def suspended(store: Store, **changes: Any) -> UUID:
    """The approval that a suspended job waits for."""
    approval = await asked(store, **changes)
    await store.leases.finish(await lease_of(store, approval.job_id), Outcome(S.WAITING_FOR_APPROVAL))
    return approval.id
