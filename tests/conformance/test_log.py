"""The log of a job: appended by compare-and-set or by the holder, dense, exact, and never rewritten."""

import asyncio
import json
from uuid import uuid4

import pytest

from perdure.model.errors import IllegalTransition, JobLeased, JobNotFound, VersionMismatch
from perdure.model.states import Status
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Refused, Shell
from tests.conformance.support import S, case, checked_log, claim, enqueue, event, lease_of, run_to, started

TERMINAL = [s for s in Status if s.terminal]
UNLEASED = [s for s in Status if not s.terminal and not s.leased]
UPSERT = """insert into job_events (job_id, version, type) values ({id}, 2, 'x')
on conflict (job_id, version) do update set payload = '[]'"""
AWKWARD = [
    '{"b":  1, "a": 1.50, "a": 2}',  # spaces, key order, a repeated key and a trailing zero are part of the text
    '"\\u0000 \\ud83d\\ude00 \\u4f60\\u597d 你好 😀"',
    "1e400",
    "123456789012345678901234567890",
    "null",
]
FORGERIES = [
    "update job_events set payload = '[]'",
    "update job_events set type = 'job_completed' where job_id = {id} and version = 1",
    "delete from job_events",
    "delete from job_events where job_id = {id} and version = 2",
    "delete from jobs where id = {id}",
    "insert into job_events (job_id, version, type) values ({id}, 4, 'gap')",
    "insert into job_events (job_id, version, type) values ({id}, 2, 'again')",
    "insert into job_events (job_id, version, type) values ({other}, 2, 'no such job')",
    UPSERT,
    "update jobs set version = version + 1 where id = {id}",
    "update jobs set version = version - 1 where id = {id}",
    "update jobs set status = 'CANCELLED', version = version + 5 where id = {id}",
    "update jobs set status = 'CANCELLED', version = version - 1 where id = {id}",
    "update jobs set attempt = -1 where id = {id}",
    "update jobs set id = {other} where id = {id}",
    "update jobs set kind = 'another' where id = {id}",
    "update jobs set tenant_id = 'another' where id = {id}",
    "update jobs set priority = 10 where id = {id}",
    "update jobs set retry_count = 101 where id = {id}",
    "update jobs set finished_at = created_at where id = {id}",
    "update jobs set error_message = 'odd' where id = {id}",
    "insert into jobs (id, kind, payload_hash, status) values ({other}, 'echo', 'x', 'COMPLETED')",
    "insert into jobs (id, kind, payload_hash, status) values ({other}, 'echo', 'x', 'RUNNING')",
    "insert into jobs (id, kind, payload_hash, version) values ({other}, 'echo', 'x', 2)",
]
REPLACEMENTS = [
    "replace into job_events (job_id, version, type, payload) values ({id}, 2, 'forged', '{{}}')",
    "replace into jobs (id, kind, payload_hash) values ({id}, 'echo', 'forged')",
    "replace into jobs (id, kind, payload_hash, idempotency_key) values ({other}, 'echo', 'forged', 'order:1')",
    "update or replace jobs set idempotency_key = 'order:1' where id = {id}",
    "update or replace job_events set version = 1 where job_id = {id} and version = 2",
    "update or ignore job_events set payload = '[]'",
    "replace into jobs (rowid, id, kind) select rowid, {other}, 'forged' from jobs where id = {id}",
    "insert into jobs (rowid, id, kind) values (-7, {other}, 'forged')",
    "update or replace jobs set rowid = (select rowid from jobs where idempotency_key = 'order:1') where id = {id}",
    "update jobs set rowid = rowid + 100 where id = {id}",
    "update jobs set _ROWID_ = rowid + 100 where id = {id}",
    (
        "update or replace jobs set oid = 1, status = 'CANCELLED', version = version + 1, prev_status = status, finished_at = 7 "
        "where id = {id}"
    ),
]


async def test_append_moves_the_head_by_one(store: Store) -> None:
    for status in UNLEASED:
        with case(status):
            job_id = await run_to(store, status)
            head = (await store.jobs.get_job(job_id)).version
            assert await store.jobs.append(job_id, head, event("plan_generated", '{"steps": 2}')) == head + 1
            assert await store.jobs.append(job_id, head + 1, event()) == head + 2
            plan, note = (await checked_log(store, job_id))[-2:]
            assert (plan.version, plan.type, plan.payload, plan.new_status) == (
                head + 1,
                "plan_generated",
                {"steps": 2},
                None,
            )
            assert note.type == "note"
            assert (await store.jobs.get_job(job_id)).status is status, "an event is no transition"


@pytest.mark.parametrize("off_by", [-1, 1, 7])
async def test_append_at_another_version_says_both_versions(store: Store, off_by: int) -> None:
    job_id = await enqueue(store)
    await store.jobs.append(job_id, 1, event())
    with pytest.raises(VersionMismatch) as refused:
        await store.jobs.append(job_id, 2 + off_by, event())
    assert (refused.value.expected, refused.value.actual) == (2 + off_by, 2)
    assert len(await checked_log(store, job_id)) == 2


async def test_of_many_appends_at_one_version_one_wins(store: Store) -> None:
    job_id = await enqueue(store)
    outcomes = await asyncio.gather(*(store.jobs.append(job_id, 1, event()) for _ in range(10)), return_exceptions=True)
    assert sorted(type(o).__name__ for o in outcomes) == ["VersionMismatch"] * 9 + ["int"]
    assert all(o.actual == 2 for o in outcomes if isinstance(o, VersionMismatch))
    assert len(await checked_log(store, job_id)) == 2


async def test_the_same_event_again_is_the_same_event(store: Store) -> None:
    """So that a caller who lost the connection may simply repeat the call, whatever came after it."""
    job_id = await enqueue(store)
    mine = event()
    assert await store.jobs.append(job_id, 1, mine) == 2
    assert await store.jobs.append(job_id, 1, mine) == 2
    await store.jobs.append(job_id, 2, event())
    assert await store.jobs.append(job_id, 1, mine) == 2
    assert len(await checked_log(store, job_id)) == 3


@pytest.mark.parametrize("status", [S.RUNNING, S.WAITING])
async def test_only_the_holder_appends_to_a_leased_job(store: Store, status: Status) -> None:
    job_id = await run_to(store, status)
    before = await checked_log(store, job_id)
    with pytest.raises(JobLeased):
        await store.jobs.append(job_id, (await store.jobs.get_job(job_id)).version, event())
    assert await checked_log(store, job_id) == before


async def test_nothing_is_appended_to_a_terminal_job(store: Store) -> None:
    for status in TERMINAL:
        with case(status):
            job_id = await run_to(store, status)
            before = await checked_log(store, job_id)
            with pytest.raises(IllegalTransition):
                await store.jobs.append(job_id, before[-1].version, event())
            assert await checked_log(store, job_id) == before


async def test_append_to_an_unknown_job(store: Store) -> None:
    with pytest.raises(JobNotFound):
        await store.jobs.append(uuid4(), 1, event())


async def test_the_holder_appends_in_order_after_other_sessions_did(store: Store) -> None:
    job_id = await enqueue(store)
    await store.jobs.append(job_id, 1, event("before"))
    lease = (await claim(store, job_id)).lease
    recorded = await store.leases.record(lease, [event("one"), event("two"), event("three")])
    assert recorded == 6
    events = await checked_log(store, job_id)
    assert [e.type for e in events] == ["job_created", "before", "run_started", "one", "two", "three"]
    assert [e.attempt for e in events[2:]] == [1, 1, 1, 1]


async def test_fifty_concurrent_writes_of_five_jobs_stay_dense(store: Store) -> None:
    leases = [await started(store) for _ in range(5)]
    mine = [(lease, [event(f"{n}.{m}") for m in range(1 + n % 3)]) for n in range(10) for lease in leases]
    recorded = await asyncio.gather(*(store.leases.record(lease, events) for lease, events in mine))
    for lease in leases:
        log = await checked_log(store, lease.job_id)
        where = {str(e.event_id): e.version for e in log}
        for (holder, events), done in zip(mine, recorded, strict=True):
            if holder is lease:
                versions = [where[e.event_id] for e in events]
                assert versions == list(range(done - len(events) + 1, done + 1)), "one call, one run"


async def test_json_is_kept_as_the_exact_text(file_store: Store, shell: Shell) -> None:
    """A digest over what was stored must still fit; and no text may make a job unreadable."""
    for text in AWKWARD:
        with case(text):
            job_id = await enqueue(file_store, payload=text)
            claimed = await claim(file_store, job_id)
            assert claimed.payload == text
            await file_store.leases.record(
                claimed.lease, [event("node_finished", f'{{"key": "search", "result":{text}}}')]
            )
            [row] = await shell.run(
                f"select {shell.text('payload')} as payload from job_events where type = 'node_finished' "
                f"and job_id = {shell.id(job_id)}"
            )
            assert row["payload"] == f'{{"key": "search", "result":{text}}}'
            job = await file_store.jobs.get_job(job_id)
            assert job.payload == json.loads(text)
            assert job.state.cursor == "search"


async def test_list_events_pages_and_filters(store: Store) -> None:
    lease = await started(store)
    await store.leases.record(lease, [event("odd" if n % 2 else "even") for n in range(3, 13)])
    log = await store.jobs.list_events(lease.job_id)
    assert await store.jobs.list_events(lease.job_id, limit=4) == log[:4]
    assert await store.jobs.list_events(lease.job_id, after=4, limit=4) == log[4:8]
    assert await store.jobs.list_events(lease.job_id, after=12) == []
    assert [e.version for e in await store.jobs.list_events(lease.job_id, types=["odd"])] == [3, 5, 7, 9, 11]
    assert [e.version for e in await store.jobs.list_events(lease.job_id, types=["odd"], after=5, limit=1)] == [7]
    assert await store.jobs.list_events(lease.job_id, types=["never"]) == []
    assert await store.jobs.list_events(uuid4()) == []


async def test_the_database_refuses_to_falsify_the_record(file_store: Store, shell: Shell) -> None:
    for statement in FORGERIES:
        with case(statement):
            job_id = await enqueue(file_store)
            await file_store.jobs.append(job_id, 1, event())
            before = await file_store.jobs.get_job(job_id), await checked_log(file_store, job_id)
            with pytest.raises(Refused):
                await shell.run(statement.format(id=shell.id(job_id), other=shell.id(uuid4())))
            assert (await file_store.jobs.get_job(job_id), await checked_log(file_store, job_id)) == before


async def test_replacing_is_no_way_around(file_store: Store, shell: Shell) -> None:
    """SQLite's REPLACE deletes what is in its way without asking the triggers of DELETE."""
    if shell.postgres:
        pytest.skip("SQLite's own conflict clauses")
    keeper = await enqueue(file_store, idempotency_key="order:1")
    for statement in REPLACEMENTS:
        with case(statement):
            job_id = await enqueue(file_store)
            await file_store.jobs.append(job_id, 1, event())
            before = [await checked_log(file_store, i) for i in (job_id, keeper)]
            with pytest.raises(Refused):
                await shell.run(statement.format(id=shell.id(job_id), other=shell.id(uuid4())))
            assert [await checked_log(file_store, i) for i in (job_id, keeper)] == before


@pytest.mark.parametrize("table", ["job_events", "jobs"])
async def test_truncate_is_refused(file_store: Store, shell: Shell, table: str) -> None:
    if not shell.postgres:
        pytest.skip("SQLite has no TRUNCATE")
    job_id = await enqueue(file_store)
    with pytest.raises(Refused):
        await shell.run(f"truncate {table} cascade")
    await checked_log(file_store, job_id)


async def test_an_event_older_than_a_leased_head_cannot_be_slipped_in(file_store: Store, shell: Shell) -> None:
    job_id = await run_to(file_store, S.RUNNING)
    await file_store.leases.record(await lease_of(file_store, job_id), [event(), event()])
    for version in (1, 3, 4, 6):
        with pytest.raises(Refused):
            await shell.run(
                f"insert into job_events (job_id, version, type) values ({shell.id(job_id)}, {version}, 'x')"
            )
    await checked_log(file_store, job_id)


async def test_job_history_is_the_log_of_transitions(file_store: Store, shell: Shell) -> None:
    lease = await started(file_store)
    await file_store.leases.record(lease, [event()])
    await file_store.leases.set_waiting(lease, True)
    rows = await shell.run(f"select * from job_history where job_id = {shell.id(lease.job_id)} order by version")
    assert list(rows[0]) == ["job_id", "version", "previous_status", "new_status", "metadata", "created_at"]
    assert [(row["version"], row["previous_status"], row["new_status"]) for row in rows] == [
        (1, None, "PENDING"),
        (2, "PENDING", "RUNNING"),
        (4, "RUNNING", "WAITING"),
    ]
    assert json.loads(rows[1]["metadata"])["worker"] == lease.worker_id
