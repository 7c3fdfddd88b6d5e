"""`check` and `repair` apart from the faults themselves: pages, tenants, second looks, and that repaired jobs go on."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from perdure.model.effects import open_wait, patch_state
from perdure.model.errors import InvalidInput, LeaseLost, SchemaTooNew
from perdure.model.events import NewEvent
from perdure.model.fsck_faults import Finding
from perdure.model.ids import uuid7
from perdure.model.jobs import JobFilter, Outcome, Wait
from perdure.model.states import TRANSITIONS
from perdure.store.open import open_store
from perdure.store.postgres.engine import connections, database
from perdure.store.protocol import Store
from tests.conformance.healthy_jobs import fsck, stronger
from tests.conformance.sql_shell import Shell
from tests.conformance.support import (
    HOUR,
    KINDS,
    S,
    approve,
    case,
    claim,
    claimable,
    enqueue,
    later,
    new_approval,
    new_job,
    outcome,
    own_queue,
    run_out,
    run_to,
    started,
)


def codes(findings: Sequence[Finding]) -> list[str]:
    return [f.code for f in findings]


async def napping(store: Store) -> UUID:
    """A job PARKED by a timer, as the runtime writes it."""
    lease = await started(store)
    until = await later(store, HOUR)
    began = NewEvent("wait_started", f'{{"key": "nap", "kind": "timer", "until": "{until.isoformat()}"}}')
    await store.leases.record(lease, [began], effects=[open_wait(Wait("nap", "timer", until))])
    await store.leases.finish(lease, Outcome(S.PARKED))
    return lease.job_id


# Looking -------------------------------------------------------------------------------------------------------------


async def test_jobs_of_every_state_are_in_order(store: Store) -> None:
    ids = {await run_to(store, status) for status in S if status is not S.PARKED}
    ids |= {await enqueue(store, delay=HOUR, deadline=await later(store, 2 * HOUR)), await napping(store)}
    retried = await started(store, max_retries=1)
    await store.leases.finish(retried, outcome(S.RETRY, delay=0, uses_retry=True))
    await store.leases.finish((await claim(store, retried.job_id)).lease, outcome(S.RETRY, uses_retry=True))
    lost = await started(store)
    await run_out(store, lost)
    await store.leases.reap(worker_id="reaper")
    ids |= {retried.job_id, lost.job_id}
    assert [f for f in await fsck(store) if f.job_id in ids] == []


async def test_pages_hold_every_job_once(file_store: Store, shell: Shell) -> None:
    ids = [await run_to(file_store, S.COMPLETED) for _ in range(7)]
    async with stronger(shell):
        await shell.run("update jobs set attempt = attempt + 1")
    found: list[Finding] = []
    jobs, pages, after = 0, 0, None
    while True:
        page = await file_store.checks.check(after=after, limit=3)
        found += page.findings
        jobs, pages, after = jobs + page.jobs, pages + 1, page.next
        if after is None:
            break
    assert [f.job_id for f in found] == ids
    assert (jobs, pages) == (7, 3)
    assert (await file_store.checks.check(limit=7)).next is not None, "it is not known yet that this was the last page"
    assert (await file_store.checks.check(after=str(ids[-1]))).jobs == 0


async def test_a_neighbours_jobs_are_left_out(file_store: Store, neighbour: Store, shell: Shell) -> None:
    await run_to(neighbour, S.PENDING)
    mine = await run_to(file_store, S.PENDING)
    claimed, queued = uuid7(), uuid7()
    await shell.run(
        "insert into job_claims (job_id, tenant_id, attempt, version, worker_id, expires_at)"
        f" values ({shell.id(claimed)}, 'neighbour', 1, 2, 'w', {shell.ago(0)})"
    )
    await shell.run("delete from job_queue")
    await shell.run(
        "insert into job_queue (job_id, lane, kind, priority, run_at)"
        f" values ({shell.id(queued)}, 'x', 'echo', 5, {shell.ago(0)})"
    )
    assert {(f.code, f.job_id) for f in await fsck(file_store)} == {("queue-missing", mine), ("orphan", queued)}
    theirs = await fsck(neighbour)
    assert sorted(codes(theirs)) == ["orphan", "orphan", "queue-missing"], (
        "what belongs to no job is reported to every tenant"
    )
    assert mine not in {f.job_id for f in theirs}
    assert (await neighbour.checks.check()).jobs == (await file_store.checks.check()).jobs == 1
    assert await file_store.checks.repair((await neighbour.jobs.list_jobs(JobFilter())).items[0].id) == [], (
        "nor are they repaired"
    )


async def test_what_is_well_at_the_second_look_is_not_reported(
    file_store: Store, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    healed, sick = await enqueue(file_store), await enqueue(file_store)
    [row] = await shell.run(f"select * from job_queue where job_id = {shell.id(healed)}")
    await shell.run("delete from job_queue")
    looks: Any = file_store.checks
    examine = looks._examine

    async def heal_first(keys: Sequence[Any]) -> Any:
        at = shell.ago(0)
        place = f"{shell.id(healed)}, '{row['lane']}', 'echo', {row['priority']}, {at}, null"
        await shell.run(f"insert into job_queue (job_id, lane, kind, priority, run_at, deadline) values ({place})")
        await shell.run(f"update jobs set run_at = (select run_at from job_queue) where id = {shell.id(healed)}")
        await shell.run(f"delete from job_claims where job_id = {shell.id(sick)}")
        return await examine(keys)

    monkeypatch.setattr(looks, "_examine", heal_first)
    page = await file_store.checks.check()
    assert [(f.code, f.job_id) for f in page.findings] == [("queue-missing", sick)]


async def test_a_fork_may_begin_with_what_it_inherited(store: Store) -> None:
    events = [
        ("node_finished", '{"key": "one", "digest": "a", "result": 1}'),
        ("node_finished", '{"key": "one", "digest": "b", "result": 1}'),
        ("tool_called", '{"key": "effect", "digest": "a"}'),
        ("wait_started", '{"key": "nap", "kind": "timer", "until": "2026-11-20T00:00:00+00:00"}'),
        ("wait_completed", '{"key": "nap", "kind": "timer"}'),
        ("checkpoint_saved", '{"state": {"n": 1}, "copied": {"version": 3}}'),
    ]
    fork = new_job(queue=own_queue(), origin_kind="fork", origin_id=uuid7())
    await store.jobs.enqueue_recorded(fork, [NewEvent(*e) for e in events], checkpoint='{"n": 1}')

    async def found() -> list[str]:
        return [f.code for f in await fsck(store) if f.job_id == fork.id]

    assert await found() == []
    lease = (await claim(store, fork.id)).lease
    await store.leases.record(lease, [NewEvent("node_finished", '{"key":"two","digest":"b","result":1}')])
    assert await found() == []
    await store.leases.record(lease, [NewEvent("node_finished", '{"key":"one","digest":"b","result":1}')])
    assert await found() == ["step-twice"], "inherited steps count as recorded"


async def test_what_is_done_by_hand_within_the_triggers_is_in_order(file_store: Store, shell: Shell) -> None:
    """Ad-hoc SQL is repaired and audited by the database, so there is nothing for fsck to find."""
    bare, dated = uuid7(), uuid7()
    await shell.run(f"insert into jobs (id, kind) values ({shell.id(bare)}, 'x')")
    await shell.run(
        "insert into jobs (id, kind, queue, priority, run_at, deadline, created_at)"
        f" values ({shell.id(dated)}, 'x', 'q', 7, {shell.ago(-60)}, {shell.ago(-90)}, {shell.ago(600)})"
    )
    await shell.run(f"update jobs set priority = 2, queue = 'other', deadline = null where id = {shell.id(dated)}")
    for old, targets in TRANSITIONS.items():
        for new in targets:
            job_id = await napping(file_store) if old is S.PARKED else await run_to(file_store, old)
            with case(old, new):
                await shell.run(f"update jobs set status = '{new}' where id = {shell.id(job_id)}")
                if new is S.RUNNING and old is not S.WAITING:
                    await file_store.leases.reap(worker_id="reaper")
                assert await fsck(file_store) == []


async def test_logs_of_any_length_and_keys_of_any_kind(store: Store) -> None:
    lease = await started(store)
    for start in range(0, 3000, 500):
        steps = [f'{{"key":"step {n}","digest":"d","result":null}}' for n in range(start, start + 500)]
        await store.leases.record(lease, [NewEvent("node_finished", payload) for payload in steps])
    huge, odd = "x" * 5000, '{"result": 1, "key": "not where we write it"}'
    payloads = [f'{{"key":"{huge}{n}","digest":"d","result":1}}' for n in range(2)] + [odd, odd, odd]
    await store.leases.record(lease, [NewEvent("node_finished", payload) for payload in payloads])
    assert [f for f in await fsck(store) if f.job_id == lease.job_id] == []
    await store.leases.record(lease, [NewEvent("node_finished", '{"key":"step 7","digest":"d","result":null}')])
    [finding] = [f for f in await fsck(store) if f.job_id == lease.job_id]
    assert (finding.code, finding.text) == ("step-twice", "version 3008 records 'step 7' again")


async def test_unknown_values_are_reported_and_break_nothing(file_store: Store, shell: Shell) -> None:
    lease = await started(file_store)
    unreadable = [NewEvent("wait_started", '{"key": 5}'), NewEvent("usage_recorded", '{"tokens": "many"}')]
    await file_store.leases.record(
        lease, [*unreadable, NewEvent("approval_decided", "[]")], effects=[patch_state(tokens=3)]
    )
    found = await fsck(file_store)
    assert [(f.code, f.text) for f in found] == [
        ("log-payload", "version 3 (wait_started) lacks what such an event always has (and 2 more like it)")
    ]
    if shell.postgres:
        return
    job = await enqueue(file_store)
    async with stronger(shell):
        await shell.run(f"update jobs set status = 'NONSENSE' where id = {shell.id(job)}")
        await shell.run(
            "insert into job_queue (job_id, lane, kind, priority, run_at) values ('no uuid at all', 'x', 'echo', 5, 0)"
        )
        await shell.run(
            f"update job_events set to_status = 'HUH' where job_id = {shell.id(lease.job_id)} and version = 2"
        )
    found = await fsck(file_store, fix=True)
    assert ("row-status", job, "the row says NONSENSE, its log PENDING") in {(f.code, f.job_id, f.text) for f in found}
    assert ("log-illegal", lease.job_id) in {(f.code, f.job_id) for f in found}
    assert ("orphan", None, "a queue row of a job that does not exist: 'no uuid at all'") in {
        (f.code, f.job_id, f.text) for f in found
    }
    assert not any(f.fixable for f in found)


# Databases that cannot be looked at -----------------------------------------------------------------------------------------


async def test_a_newer_schema_is_left_alone(file_store: Store, shell: Shell) -> None:
    await shell.run(
        f"insert into schema_migrations (number, name, checksum, applied_at) values (999, 'x', 'y', {shell.ago(0)})"
    )
    with pytest.raises(SchemaTooNew):
        await fsck(file_store, fix=True)


async def test_a_place_that_is_none(file_store: Store, shell: Shell) -> None:
    if not shell.postgres:
        pytest.skip("any text is a place there")
    with pytest.raises(InvalidInput, match="is not a cursor"):
        await file_store.checks.check(after="nowhere")


# Repairs -------------------------------------------------------------------------------------------------------------


async def test_repairing_what_is_well_changes_nothing(store: Store) -> None:
    job_id = await run_to(store, S.RETRY)
    before = await store.jobs.get_job(job_id)
    assert await store.checks.repair(job_id) == []
    assert await store.checks.repair(None) == []
    assert await store.checks.repair(uuid4()) == []
    assert await store.jobs.get_job(job_id) == before


async def test_a_job_that_lost_its_lease_row_is_taken_over(file_store: Store, shell: Shell) -> None:
    fresh, begun = await started(file_store), await started(file_store)
    await file_store.leases.record(begun, [NewEvent("node_finished", '{"key":"one","digest":"a","result":1}')])
    await shell.run("delete from job_claims")
    assert await file_store.leases.reap(worker_id="reaper") == [], "no worker could take it over"
    assert codes(await fsck(file_store, fix=True)) == ["claim-missing"] * 2
    for lease in (fresh, begun):
        with pytest.raises(LeaseLost):
            await file_store.leases.record(lease, [NewEvent("note")])
    assert {r.status for r in await file_store.leases.reap(worker_id="reaper")} == {S.RETRY}
    assert (await file_store.jobs.get_job(fresh.job_id)).retry_count == 0, "it never began"
    assert (await file_store.jobs.get_job(begun.job_id)).retry_count == 1
    assert await claimable(file_store, begun.job_id)
    assert await fsck(file_store) == []


async def test_a_lease_at_another_version_goes_on(file_store: Store, shell: Shell) -> None:
    lease = await started(file_store)
    await shell.run("update job_claims set version = 1")
    assert codes(await fsck(file_store, fix=True)) == ["claim-differs"]
    await file_store.leases.record(lease, [NewEvent("note")])
    assert await file_store.leases.finish(lease, outcome(S.COMPLETED)) is S.COMPLETED
    assert await fsck(file_store) == []


async def test_an_answer_that_woke_no_job_wakes_it_after_the_repair(file_store: Store, shell: Shell) -> None:
    """Its wait was lost first, so the decision woke no job."""
    lease = await started(file_store)
    approval = await file_store.approvals.request_approval(lease, new_approval())
    await file_store.leases.finish(lease, Outcome(S.WAITING_FOR_APPROVAL))
    await shell.run("delete from job_waits")
    await file_store.approvals.decide(approve(approval))
    assert not await claimable(file_store, lease.job_id)
    assert codes([f for f in await fsck(file_store, fix=True) if f.fixed]) == ["wait-missing", "queue-missing"]
    assert await claimable(file_store, lease.job_id)


async def test_a_wait_that_was_lost_is_written_again_before_the_answer(file_store: Store, shell: Shell) -> None:
    lease = await started(file_store)
    approval = await file_store.approvals.request_approval(lease, new_approval())
    await file_store.leases.finish(lease, Outcome(S.WAITING_FOR_APPROVAL))
    [before] = await shell.run("select job_id, key, kind, subject_id, until, answered_at from job_waits")
    await shell.run("delete from job_waits")
    assert codes([f for f in await fsck(file_store, fix=True) if f.fixed]) == ["wait-missing"]
    assert await shell.run("select job_id, key, kind, subject_id, until, answered_at from job_waits") == [before]
    assert not await claimable(file_store, lease.job_id), "it still waits"
    await file_store.approvals.decide(approve(approval))
    assert await claimable(file_store, lease.job_id)


async def test_a_sleeper_whose_rows_were_lost_wakes_when_it_was_to(file_store: Store, shell: Shell) -> None:
    job_id = await napping(file_store)
    before = await file_store.jobs.get_job(job_id)
    await shell.run("delete from job_waits")
    await shell.run("delete from job_queue")
    assert "wait-missing" in codes(await fsck(file_store, fix=True))
    after = await file_store.jobs.get_job(job_id)
    assert (after.waits, after.due_at) == (before.waits, before.due_at)


async def test_state_is_added_up_from_the_log(file_store: Store, shell: Shell) -> None:
    lease = await started(file_store)
    for n in (1, 2):
        text = f'{{"at":  {n}, "nul": "\\u0000"}}'
        saved = NewEvent("checkpoint_saved", f'{{"state":{text}}}')
        used = NewEvent("usage_recorded", f'{{"tokens": {n}, "cost": 0.{n}}}')
        patch = patch_state(checkpoint=text, tokens=n, cost=Decimal(n) / 10, progress=0.5)
        await file_store.leases.record(lease, [saved, used], effects=[patch])
    columns = f"{shell.text('checkpoint')} as checkpoint, tokens, cost"
    before = await shell.run(f"select {columns} from job_state")
    await shell.run("delete from job_state")
    assert codes(await fsck(file_store, fix=True)) == ["state-missing"]
    assert await shell.run(f"select {columns} from job_state") == before
    await shell.run("update job_state set checkpoint = null, cost = 77, progress = 0.75")
    assert [f.fixed for f in await fsck(file_store, fix=True)] == [True]
    assert await shell.run(f"select {columns} from job_state") == before
    [row] = await shell.run("select progress from job_state")
    assert row["progress"] == 0.75, "of which the log says nothing"


async def test_an_attempt_whose_run_row_was_taken_ends(file_store: Store, shell: Shell) -> None:
    lease = await started(file_store)
    await shell.run(
        "insert into job_incomplete_runs (job_id, attempt, worker_id, started_at, finished_at, outcome)"
        f" values ({shell.id(lease.job_id)}, 1, 'w', {shell.ago(1)}, {shell.ago(1)}, 'COMPLETED')"
    )
    assert codes(await fsck(file_store, fix=True)) == ["run-unknown"]
    assert await file_store.leases.finish(lease, outcome(S.COMPLETED)) is S.COMPLETED


async def test_a_repair_that_the_database_refuses_is_reported_and_the_others_go_on(
    file_store: Store, shell: Shell
) -> None:
    bad, good = await enqueue(file_store, priority=3), await run_to(file_store, S.FAILED)
    await shell.run("delete from job_queue")
    await shell.run("delete from job_failures")
    if shell.postgres:
        await shell.run("alter table job_queue add constraint mine check (priority > 3)")
    else:
        await shell.run(
            "create trigger mine before insert on job_queue when new.priority = 3"
            " begin select raise(abort, 'not this one'); end"
        )
    found = {f.job_id: f for f in await fsck(file_store, fix=True)}
    assert (found[good].code, found[good].fixed) == ("failure-missing", True)
    assert (found[bad].code, found[bad].fixable, found[bad].fixed) == ("queue-missing", True, False)
    assert "(not repaired: " in found[bad].text
    assert ("mine" if shell.postgres else "not this one") in found[bad].text


async def test_a_job_that_is_locked_is_reported_and_the_others_go_on(
    file_store_url: str, file_store: Store, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shell.postgres:
        pytest.skip("SQLite locks the database")
    locked, free = await enqueue(file_store), await enqueue(file_store)
    await shell.run("delete from job_queue")
    await shell.run("begin")
    await shell.run(f"select 1 from jobs where id = {shell.id(locked)} for update")
    monkeypatch.setattr(database, "BLOCKS", 0)
    monkeypatch.setitem(connections.POOLED, "lock_timeout", "100ms")
    hurried_store = await open_store(file_store_url)
    found = {f.job_id: f for f in await fsck(hurried_store, fix=True)}
    await hurried_store.close()
    await shell.run("rollback")
    assert found[free].fixed
    assert not found[locked].fixed
    assert "(not repaired: another session keeps a lock on this" in found[locked].text
    assert [f.fixed for f in await fsck(file_store, fix=True)] == [True]


async def test_two_repairs_at_once_repair_once(file_store: Store, twin: Store, shell: Shell) -> None:
    ids = [await enqueue(file_store) for _ in range(5)]
    ids += [(await started(file_store)).job_id for _ in range(5)]
    for table in ("job_queue", "job_claims"):
        await shell.run(f"delete from {table}")
    both = await asyncio.gather(fsck(file_store, fix=True), fsck(twin, fix=True))
    fixed = [f.job_id for found in both for f in found if f.fixed]
    assert sorted(fixed, key=str) == sorted(ids, key=str)
    assert [f for found in both for f in found if not f.fixed] == []
    assert await fsck(file_store) == []


async def test_repairs_while_jobs_are_claimed(file_store: Store, twin: Store, shell: Shell) -> None:
    """Many jobs lose their queue rows; while they are put back, others are being claimed: every job is claimed once."""
    ids = [await enqueue(file_store, queue="busy") for _ in range(40)]
    lost = ", ".join(shell.id(id) for id in ids[::2])
    await shell.run(f"delete from job_queue where job_id in ({lost})")
    repairing = asyncio.create_task(fsck(file_store, fix=True))
    claimed: list[UUID] = []
    async with asyncio.timeout(60):
        while len(claimed) < len(ids) or not repairing.done():
            for job in await twin.leases.claim(worker_id="w", queue="busy", kinds=KINDS, limit=3, ttl=HOUR):
                claimed.append(job.id)
                await twin.leases.finish(job.lease, outcome(S.COMPLETED))
    assert sorted(claimed) == sorted(ids)
    assert {f.fixed for f in await repairing} == {True}
    assert await fsck(file_store) == []
