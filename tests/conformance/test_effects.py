"""What commits together with events, or with the end of an attempt: all of it or nothing, and only under a live lease."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from perdure.model.budgets import Amounts
from perdure.model.documents import DocumentRange, NewDocument
from perdure.model.effects import (
    LOCK_ORDER,
    Effect,
    add_document,
    add_tool_run,
    await_jobs,
    begin_log,
    bind_signals,
    close_wait,
    look_at_mailbox,
    open_wait,
    patch_state,
    raise_budget,
    refuse_signal,
    release_hold,
    release_messages,
    release_signal,
    remove_range,
    send_message,
    settle_wait,
    spawn_job,
    spend_budget,
    use_hold,
    withdraw_approval,
    write_memory,
)
from perdure.model.errors import LeaseLost
from perdure.model.ids import uuid7
from perdure.model.jobs import Lease, Outcome, Wait
from perdure.model.messages import NewMessage
from perdure.model.task_records import ToolRun
from perdure.model.tooling import CliRun, RunClass
from perdure.runtime.memory_checks import new_memory
from perdure.store.protocol import Store
from perdure.store.statements import load_statements
from tests.conformance.support import HOUR, S, checked_log, event, later, new_job, outcome, run_out, started


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_each_effect_is_a_statement_of_both_dialects(dialect: str) -> None:
    assert set(LOCK_ORDER) <= set(load_statements(f"perdure.store.{dialect}"))
    now = datetime.now(UTC)
    run = ToolRun(uuid7(), 1, "codex", None, "w", now, now, (), CliRun(RunClass.OK))
    made = (
        patch_state(),
        send_message(NewMessage(uuid7(), "ann", "1")),
        release_messages("news"),
        look_at_mailbox(None),
        close_wait("timer", "nap"),
        open_wait(Wait("nap", "timer")),
        add_tool_run(run),
        withdraw_approval(uuid7()),
        release_signal("x"),
        refuse_signal("x", "why"),
        *bind_signals("x"),
        await_jobs("nap", [uuid7()]),
        settle_wait("nap"),
        spawn_job(new_job()),
        *begin_log(uuid7(), [event()]),
        *write_memory("default", new_memory("a note", scope="tenant", created_by="ann")),
        add_document("default", NewDocument("notes", "a", "1")),
        remove_range("default", DocumentRange("notes")),
        spend_budget("default", "tenant", Amounts(tokens=1)),
        raise_budget("default", "tenant", 0, Amounts(tokens=1)),
        use_hold("step:a/1", Amounts(tokens=1)),
        release_hold("step:a/1"),
    )
    assert {effect.statement for effect in made} == set(LOCK_ORDER)


async def test_a_suspended_job_waits_for_what_its_end_opens(store: Store) -> None:
    lease, until = await started(store), await later(store, HOUR)
    effects = [open_wait(Wait("nap", "timer", until)), patch_state(progress=0.5)]
    assert await store.leases.finish(lease, Outcome(S.PARKED), effects=effects) is S.PARKED
    job = await store.jobs.get_job(lease.job_id)
    assert ([w.key for w in job.waits], job.due_at, job.state.progress) == (["nap"], until, 0.5)


@pytest.mark.parametrize("status", [S.COMPLETED, S.FAILED, S.RETRY])
async def test_state_commits_with_the_end(store: Store, status: S) -> None:
    lease = await started(store)
    effects = [patch_state(tokens=3, cost=Decimal("0.25")), patch_state(tokens=4)]
    assert await store.leases.finish(lease, outcome(status), effects=effects) is status
    state = (await store.jobs.get_job(lease.job_id)).state
    assert (state.tokens, state.cost) == (7, Decimal("0.25"))
    await checked_log(store, lease.job_id)


async def test_a_lost_lease_writes_no_effect(store: Store) -> None:
    lease = await started(store)
    await run_out(store, lease)
    for call in (
        store.leases.record(lease, [event()], effects=[patch_state(tokens=3)]),
        store.leases.record(lease, [], effects=[open_wait(Wait("nap", "timer"))]),
        store.leases.finish(lease, Outcome(S.PARKED), effects=[open_wait(Wait("nap", "timer"))]),
        store.leases.finish(lease, outcome(S.COMPLETED), effects=[patch_state(tokens=3)]),
    ):
        with pytest.raises(LeaseLost):
            await call
    job = await store.jobs.get_job(lease.job_id)
    assert (job.state.tokens, job.waits, job.version) == (0, (), 2)


async def test_calls_of_one_job_keep_their_order_though_they_share_a_commit(store: Store) -> None:
    lease = await started(store)
    first, second = Wait("nap", "timer", await later(store, HOUR)), Wait("nap", "timer", await later(store, 2 * HOUR))

    async def write(*effects: Effect) -> None:
        await store.leases.record(lease, [event()], effects=effects)

    await asyncio.gather(
        write(open_wait(first)),
        write(close_wait("timer", "nap"), patch_state(tokens=1)),
        write(open_wait(second), patch_state(tokens=1)),
    )
    job = await store.jobs.get_job(lease.job_id)
    assert [wait.until for wait in job.waits] == [second.until]
    assert job.state.tokens == 2


async def test_ends_of_many_jobs_share_commits_with_their_effects(store: Store) -> None:
    leases = [await started(store) for _ in range(30)]
    until = await later(store, HOUR)
    ends = [S.COMPLETED, S.PARKED, S.RETRY]

    async def end(lease: Lease, n: int) -> S:
        effects = [patch_state(tokens=n)] if n % 2 else []
        if ends[n % 3] is S.PARKED:
            effects.append(open_wait(Wait("nap", "timer", until)))
        return await store.leases.finish(lease, outcome(ends[n % 3]), effects=effects)

    reached = await asyncio.gather(*(end(lease, n) for n, lease in enumerate(leases)))
    assert reached == [ends[n % 3] for n in range(30)]
    for n, lease in enumerate(leases):
        job = await store.jobs.get_job(lease.job_id)
        assert job.state.tokens == (n if n % 2 else 0)
        assert len(job.waits) == (ends[n % 3] is S.PARKED)
        await checked_log(store, lease.job_id)
