"""How an attempt ends: the move, its event, its run row, and what state it keeps."""

import asyncio
import json
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from perdure.model.effects import patch_state
from perdure.model.errors import IllegalTransition, LeaseLost, PerdureError
from perdure.model.jobs import Lease, Outcome
from perdure.model.states import TRANSITIONS, Status
from perdure.store.protocol import Store
from tests.conformance.support import (
    HOUR,
    NOTE,
    OTHER,
    WORKER,
    S,
    case,
    checked_log,
    claim,
    claimable,
    event,
    later,
    near,
    outcome,
    run_out,
    run_to,
    started,
)

ENDS = [s for s in Status if s in TRANSITIONS[S.RUNNING] and not s.leased]


async def test_each_outcome_moves_the_job_and_writes_its_event_and_run(store: Store) -> None:
    for end in ENDS:
        with case(end):
            lease = await started(store)
            await store.leases.record(lease, [event()])
            assert await store.leases.finish(lease, outcome(end, ran=1.5)) is end
            events = await checked_log(store, lease.job_id)
            assert events[-1].new_status is end
            assert events[-1].attempt == 1
            job = await store.jobs.get_job(lease.job_id)
            assert job.result == ({"answer": 42} if end is S.COMPLETED else None)
            if end in {S.FAILED, S.DEADLETTER}:
                assert (job.error_message, job.error_kind) == ("it broke", "fatal")
                assert (events[-1].payload["error"], events[-1].payload["error_kind"]) == ("it broke", "fatal")
            [run] = await store.jobs.list_runs(job.id)
            assert (run.job_id, run.attempt, run.worker_id, run.outcome) == (job.id, 1, WORKER, end)
            assert run.finished_at - run.started_at == timedelta(seconds=1.5)
            assert near(run.finished_at, events[-1].at)
            if end is S.RETRY:
                assert (run.error_message, run.error_kind) == ("try later", "transient")


async def test_ends_that_share_a_write_keep_their_own_results(store: Store) -> None:
    for results in (["1", None, "1"], ["1", "1", "1"], [None, None, '"a"'], ["1", "2", "3"]):
        wanted = {await started(store): result for result in [*results, *results]}
        ends = (
            store.leases.finish(lease, Outcome(Status.COMPLETED, result=result)) for lease, result in wanted.items()
        )
        assert set(await asyncio.gather(*ends)) == {Status.COMPLETED}
        for lease, result in wanted.items():
            with case(results, lease):
                job = await store.jobs.get_job(lease.job_id)
                assert job.result == (None if result is None else json.loads(result))


async def test_an_attempt_that_never_started_leaves_no_run(store: Store) -> None:
    for end in [s for s in ENDS if s is not S.COMPLETED]:
        with case(end):
            lease = await started(store)
            await store.leases.finish(lease, outcome(end, started=False))
            assert await store.jobs.list_runs(lease.job_id) == []
            await checked_log(store, lease.job_id)


async def test_a_waiting_job_ends_as_the_machine_allows(store: Store) -> None:
    for end in sorted(TRANSITIONS[S.WAITING] - {S.RUNNING}):
        with case(end):
            lease = await started(store)
            await store.leases.set_waiting(lease, True)
            assert await store.leases.finish(lease, outcome(end)) is end
            moves = [e.new_status for e in await checked_log(store, lease.job_id) if e.new_status]
            assert moves[-2:] == [S.WAITING, end]


@pytest.mark.parametrize("end", [S.COMPLETED, S.WAITING_FOR_APPROVAL])
async def test_a_waiting_job_does_not_end_otherwise_and_keeps_its_lease(store: Store, end: Status) -> None:
    lease = await started(store)
    await store.leases.set_waiting(lease, True)
    with pytest.raises(PerdureError):
        await store.leases.finish(lease, outcome(end))
    job = await store.jobs.get_job(lease.job_id)
    assert job.status is S.WAITING
    await checked_log(store, lease.job_id)
    await store.leases.set_waiting(lease, False)
    assert await store.leases.finish(lease, outcome(end)) is end


@pytest.mark.parametrize("status", [S.PENDING, S.RUNNING, S.WAITING])
async def test_an_attempt_cannot_end_in_a_state_that_needs_a_lease(store: Store, status: Status) -> None:
    lease = await started(store)
    for waiting in (False, True):
        with case("while waiting" if waiting else "while running"):
            if waiting:
                await store.leases.set_waiting(lease, True)
            with pytest.raises(PerdureError):
                await store.leases.finish(lease, Outcome(status))
            await checked_log(store, lease.job_id)
    assert await store.leases.finish(lease, outcome(S.FAILED)) is S.FAILED, "its lease is as live as before"


async def test_there_and_back_under_one_lease(store: Store) -> None:
    lease = await started(store)
    await store.leases.set_waiting(lease, True)
    await store.leases.record(lease, [event()])
    await store.leases.set_waiting(lease, False)
    await store.leases.record(lease, [event()])
    assert await store.leases.finish(lease, outcome(S.COMPLETED)) is S.COMPLETED
    types = [e.type for e in await checked_log(store, lease.job_id)]
    assert types[2:] == ["job_waiting", "note", "job_resumed", "note", "job_completed"]
    assert [run.attempt for run in await store.jobs.list_runs(lease.job_id)] == [1]


@pytest.mark.parametrize("waiting", [True, False])
async def test_waiting_twice_does_not_harm_the_log(store: Store, waiting: bool) -> None:
    lease = await started(store)
    await store.leases.set_waiting(lease, True)
    if not waiting:
        await store.leases.set_waiting(lease, False)
    with suppress(IllegalTransition):  # not LeaseLost: the lease is live, and its holder would stop a healthy handler
        await store.leases.set_waiting(lease, waiting)
    await store.leases.record(lease, [event()])
    await checked_log(store, lease.job_id)


async def test_a_retry_is_due_after_its_delay(store: Store) -> None:
    lease = await started(store)
    await store.leases.finish(lease, outcome(S.RETRY, delay=HOUR, uses_retry=True))
    job = await store.jobs.get_job(lease.job_id)
    due = await later(store, HOUR)
    assert near(job.next_retry_at, due)
    assert near(job.due_at, due)
    assert job.retry_count == 1
    assert not await claimable(store, job.id)
    said = (await checked_log(store, job.id))[-1].payload
    assert said["error"] == "try later"
    assert said["retry_count"] == 1
    assert near(datetime.fromisoformat(said["next_retry_at"]), due)


@pytest.mark.parametrize("max_retries", [0, 1, 3])
async def test_retries_that_are_used_up_end_in_the_dead_letters(store: Store, max_retries: int) -> None:
    lease = await started(store, max_retries=max_retries)
    failure = Outcome(S.RETRY, error="still broken", uses_retry=True)
    for n in range(max_retries):
        assert await store.leases.finish(lease, failure) is S.RETRY
        again = await claim(store, lease.job_id)
        assert again.retry_count == n + 1
        lease = again.lease
    assert await store.leases.finish(lease, failure) is S.DEADLETTER
    job = await store.jobs.get_job(lease.job_id)
    assert (job.retry_count, job.attempt) == (max_retries, max_retries + 1), "no increment at the end"
    assert (job.error_message, job.error_kind) == ("still broken", "exhausted")
    assert [run.outcome for run in await store.jobs.list_runs(job.id)] == [S.RETRY] * max_retries + [S.DEADLETTER]
    await checked_log(store, job.id)


async def test_a_dead_letter_keeps_the_kind_of_its_last_error(store: Store) -> None:
    lease = await started(store, max_retries=0)
    await store.leases.finish(lease, Outcome(S.RETRY, error="slow", error_kind="timeout", uses_retry=True, delay=5))
    job = await store.jobs.get_job(lease.job_id)
    assert (job.status, job.error_kind, job.next_retry_at) == (S.DEADLETTER, "timeout", None)


async def test_a_snooze_never_uses_retries_up(store: Store) -> None:
    lease = await started(store, max_retries=0)
    for _ in range(5):
        assert await store.leases.finish(lease, Outcome(S.RETRY, reason="snoozed")) is S.RETRY
        lease = (await claim(store, lease.job_id)).lease
    assert (await store.jobs.get_job(lease.job_id)).retry_count == 0


async def test_a_cancel_request_stops_no_end_and_is_not_lost_by_what_is_none(store: Store) -> None:
    for end in ENDS:
        with case(end):
            lease = await started(store, max_retries=0)
            await store.jobs.cancel(lease.job_id, note=NOTE)
            done = await store.leases.finish(lease, outcome(end, uses_retry=end is S.RETRY))
            assert done is (end if end.terminal else S.CANCELLED)
            last = (await checked_log(store, lease.job_id))[-1]
            assert last.new_status is done
            if done is S.CANCELLED:
                assert last.payload["reason"] == "because", "in the name of who asked"


async def test_the_holder_cancels_in_the_name_of_who_asked(store: Store) -> None:
    lease = await started(store)
    await store.jobs.cancel(lease.job_id, note=NOTE)
    await store.leases.finish(lease, Outcome(S.CANCELLED, reason="stopped", ran=2))
    job = await store.jobs.get_job(lease.job_id)
    assert (job.note["actor"], job.note["reason"]) == ("ann", "because")
    assert (await checked_log(store, job.id))[-1].payload["actor"] == "ann"
    assert [run.outcome for run in await store.jobs.list_runs(job.id)] == [S.CANCELLED]


async def test_state_is_patched_and_counts_add_up(store: Store) -> None:
    lease = await started(store)
    patches: list[dict[str, Any]] = [
        {"checkpoint": '{"page": 1}', "tokens": 10, "cost": Decimal("0.25")},
        {"progress": 0.5, "progress_text": "half"},
        {"tokens": 5, "cost": Decimal("0.5")},
        {"checkpoint": '{"page": 2}'},
    ]
    for patch in patches:
        await store.leases.record(lease, [], effects=[patch_state(**patch)])
    job = await store.jobs.get_job(lease.job_id)
    assert job.version == 2, "progress is no event"
    state = job.state
    assert (state.checkpoint, state.progress, state.progress_text) == ({"page": 2}, 0.5, "half")
    assert (state.tokens, state.cost) == (15, Decimal("0.75"))
    assert state.cursor is None


async def test_state_outlives_attempts_and_is_written_with_the_events(store: Store) -> None:
    job_id = await run_to(store, S.RUNNING)
    lease = Lease(job_id, 1, WORKER)
    step = event("node_finished", '{"key": "write", "digest": "d", "result": 1}')
    recorded = await store.leases.record(lease, [step], effects=[patch_state(tokens=7)])
    assert recorded == 3
    await store.leases.finish(lease, Outcome(S.RETRY))
    again = (await claim(store, job_id, worker_id=OTHER)).lease
    await store.leases.record(again, [event()], effects=[patch_state(tokens=1)])
    await store.leases.finish(again, outcome(S.COMPLETED))
    state = (await store.jobs.get_job(job_id)).state
    assert (state.tokens, state.cursor) == (8, "write")


async def taken_over(store: Store, lease: Lease) -> Lease:
    """The lease of the worker that took this job over when its lease had expired."""
    await run_out(store, lease)
    await store.leases.reap(worker_id=OTHER)
    return (await claim(store, lease.job_id, worker_id=OTHER)).lease


async def test_many_attempts_end_in_one_call(store: Store) -> None:
    """Each as if it had ended alone; the answers come in the order of the ends."""
    statuses = ENDS * 3
    leases = [await started(store) for _ in statuses]
    ends = [(lease, outcome(status)) for lease, status in zip(leases, statuses, strict=True)]
    assert await store.leases.finish_many(ends) == statuses
    for lease, status in zip(leases, statuses, strict=True):
        job = await store.jobs.get_job(lease.job_id)
        assert (job.status, job.lease) == (status, None)
        assert [run.outcome for run in await store.jobs.list_runs(lease.job_id)] == [status]
        await checked_log(store, lease.job_id)
    assert await store.leases.finish_many([]) == []


@pytest.mark.parametrize("end", [S.COMPLETED, S.FAILED])
async def test_of_many_ends_one_without_its_lease_is_refused_and_the_others_are_written(
    store: Store, end: Status
) -> None:
    lost, taken, *live = [await started(store) for _ in range(5)]
    await run_out(store, lost)
    again = await taken_over(store, taken)
    results = await store.leases.finish_many(
        [(lease, outcome(end)) for lease in (live[0], lost, live[1], taken, live[2])]
    )
    assert [result if isinstance(result, Status) else type(result) for result in results] == [
        end, LeaseLost, end, LeaseLost, end,
    ]  # fmt: skip
    for lease in live:
        assert (await store.jobs.get_job(lease.job_id)).status is end
    assert (await store.jobs.get_job(taken.job_id)).status is S.RUNNING, "its new holder goes on"
    assert await store.leases.finish(again, outcome(end)) is end
    for lease in (lost, taken, *live):
        await checked_log(store, lease.job_id)


@pytest.mark.parametrize("ends", [(S.COMPLETED, S.COMPLETED), (S.COMPLETED, S.FAILED), (S.FAILED, S.RETRY)])
async def test_of_two_ends_of_one_job_in_one_call_that_of_the_live_lease_is_written(
    store: Store, ends: tuple[Status, Status]
) -> None:
    for order in (1, -1):
        with case("the lost one first" if order == 1 else "the lost one last"):
            lost = await started(store)
            live = await taken_over(store, lost)
            both = [(lost, outcome(ends[0])), (live, outcome(ends[1]))][::order]
            results = (await store.leases.finish_many(both))[::order]
            assert (type(results[0]), results[1]) == (LeaseLost, ends[1])
            await checked_log(store, lost.job_id)


async def test_of_many_ends_one_that_the_state_machine_refuses_keeps_no_other_from_being_written(store: Store) -> None:
    waiting, *others = [await started(store) for _ in range(3)]
    await store.leases.set_waiting(waiting, True)
    results = await store.leases.finish_many(
        [(lease, outcome(S.COMPLETED)) for lease in (others[0], waiting, others[1])]
    )
    assert results[0] is results[2] is S.COMPLETED
    assert isinstance(results[1], PerdureError)
    assert not isinstance(results[1], LeaseLost), "it still holds its lease"
    await store.leases.set_waiting(waiting, False)
    assert await store.leases.finish(waiting, outcome(S.COMPLETED)) is S.COMPLETED


async def test_an_end_that_would_keep_its_lease_is_refused_with_the_others(store: Store) -> None:
    first, second = await started(store), await started(store)
    with pytest.raises(IllegalTransition):
        await store.leases.finish_many([(first, outcome(S.COMPLETED)), (second, Outcome(S.WAITING))])
    assert (await store.jobs.get_job(first.job_id)).status is S.RUNNING, "nothing was written"


async def test_large_results_of_one_call_are_all_written(store: Store) -> None:
    text = json.dumps("x" * 1_000_000)
    leases = [await started(store) for _ in range(10)]
    results = await store.leases.finish_many([(lease, Outcome(S.COMPLETED, result=text)) for lease in leases])
    assert results == [S.COMPLETED] * 10
    for lease in leases:
        assert len((await store.jobs.get_job(lease.job_id)).result) == 1_000_000
