"""Taking finished jobs out: what may go, what goes with it, what stays, and whose turn it is to see to it."""

import asyncio
import contextlib
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from perdure.model.agents import NewAgent
from perdure.model.effects import patch_state, send_message
from perdure.model.errors import JobNotFound
from perdure.model.events import NewEvent
from perdure.model.ids import first_id_of, uuid7
from perdure.model.jobs import JobFilter
from perdure.model.messages import NewMessage, reply_channel_of
from perdure.model.retention import ENDS, PruneFilter
from perdure.model.states import Status
from perdure.model.workers import WorkerInfo, WorkerState
from perdure.store.postgres.retention import retention as postgres_retention
from perdure.store.protocol import Store
from perdure.store.sqlite.figures import figures as sqlite_figures
from perdure.store.sqlite.retention import retention as sqlite_retention
from tests.conformance.healthy_jobs import fsck
from tests.conformance.sql_shell import Refused, Shell
from tests.conformance.support import (
    HOUR,
    OTHER,
    WORKER,
    case,
    checked_log,
    claim,
    enqueue,
    event,
    near,
    new_approval,
    outcome,
    own_queue,
    passed,
    run_out,
    run_to,
    started,
)

S = Status
ALL = PruneFilter(0)


async def finished(store: Store, status: Status = S.COMPLETED, **changes: object) -> UUID:
    """A job that finished a moment ago: database time has moved on since."""
    job_id = await run_to(store, status, **changes)
    await passed(store, (await store.jobs.get_job(job_id)).finished_at)
    return job_id


async def found(store: Store, wanted: PruneFilter) -> list[UUID]:
    """All that match, page by page."""
    ids: list[UUID] = []
    after: UUID | None = None
    while True:
        page = await store.retention.list_prunable(wanted, after=after, limit=2)
        assert len(page.jobs) <= 2
        ids += [job.id for job in page.jobs]
        if page.next_after is None:
            return ids
        assert after is None or page.next_after > after
        after = page.next_after


async def statuses(store: Store) -> set[str]:
    return set(await store.jobs.count_jobs(JobFilter(), by="status"))


async def test_finished_jobs_go_and_nothing_else(store: Store) -> None:
    jobs = {status: await (finished if status.terminal else run_to)(store, status) for status in Status}
    ends = [jobs[s] for s in Status if s.terminal]
    assert sorted(await found(store, ALL)) == sorted(ends)
    assert await found(store, PruneFilter(0, statuses=tuple(Status))) == sorted(ends), "what is no end never matches"
    assert await found(store, PruneFilter(0, statuses=(S.PENDING, S.RUNNING))) == []
    assert await found(store, PruneFilter(HOUR)) == []
    for keep_logs in (True, False):
        assert await store.retention.prune([jobs[s] for s in Status if not s.terminal], keep_logs=keep_logs) == 0
    assert await store.retention.prune([*jobs.values(), uuid7()]) == len(ends)
    assert await statuses(store) == {str(s) for s in Status if not s.terminal}
    assert await store.retention.prune(ends) == 0
    for status, job_id in jobs.items():
        if status.terminal:
            with pytest.raises(JobNotFound):
                await store.jobs.get_job(job_id)
            assert await store.jobs.list_events(job_id) == []
            assert await store.jobs.list_runs(job_id) == []
        else:
            await checked_log(store, job_id)


async def test_filters_narrow_and_pages_are_complete(store: Store) -> None:
    mail = [await finished(store, kind="mail", queue="a") for _ in range(3)]
    failed = await finished(store, S.FAILED, kind="mail", queue="b")
    other = await finished(store, S.CANCELLED, kind="report", queue="b")
    assert await found(store, ALL) == [*mail, failed, other]
    assert await found(store, PruneFilter(0, statuses=(S.COMPLETED,))) == mail
    assert await found(store, PruneFilter(0, kinds=("mail",))) == [*mail, failed]
    assert await found(store, PruneFilter(0, queues=("b",))) == [failed, other]
    assert await found(store, PruneFilter(0, kinds=("mail", "report"), queues=("b",), statuses=ENDS)) == [failed, other]
    assert await found(store, PruneFilter(0, kinds=("nothing",))) == []
    page = await store.retention.list_prunable(ALL, after=mail[0], before=other)
    assert ([job.id for job in page.jobs], page.next_after) == ([*mail[1:], failed], None)
    assert page.jobs[0].events == (await store.jobs.get_job(mail[1])).version == 3


async def test_a_look_is_bounded_whatever_matches(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (postgres_retention, sqlite_retention):
        monkeypatch.setattr(module, "MOST_EXAMINED", 2)
    first = await finished(file_store)
    live = [await enqueue(file_store) for _ in range(4)]
    last = await finished(file_store)
    page = await file_store.retention.list_prunable(ALL)
    assert ([job.id for job in page.jobs], page.next_after) == ([first], live[0])
    page = await file_store.retention.list_prunable(ALL, after=page.next_after)
    assert (page.jobs, page.next_after) == ((), live[2]), "an empty page that is not the last"
    assert await found(file_store, ALL) == [first, last]


async def test_age_is_that_of_the_end_by_database_time(file_store: Store, shell: Shell) -> None:
    old, young = [await run_to(file_store, S.COMPLETED) for _ in range(2)]
    await shell.run(f"update jobs set finished_at = {shell.ago(2 * HOUR)} where id = {shell.id(old)}")
    assert await found(file_store, PruneFilter(HOUR)) == [old]
    assert await found(file_store, PruneFilter(3 * HOUR)) == []
    assert near((await file_store.jobs.get_job(young)).finished_at, await file_store.now())


TABLES = (
    "job_events",
    "job_queue",
    "job_claims",
    "job_waits",
    "job_state",
    "job_incomplete_runs",
    "job_failures",
    "approvals",
    "prune_batch",
)


async def test_no_row_of_a_job_stays_behind(file_store: Store, shell: Shell) -> None:
    lease = await started(file_store, idempotency_key="order:1")
    await file_store.approvals.request_approval(lease, new_approval())
    await file_store.leases.record(lease, [event()], effects=[patch_state(checkpoint="{}", tokens=3)])
    await file_store.leases.finish(lease, outcome(S.FAILED))
    kept = await finished(file_store, S.FAILED)
    before = await checked_log(file_store, kept)
    assert await file_store.retention.prune([lease.job_id]) == 1
    for table in (*TABLES, "job_runs"):
        rows = await shell.run(f"select job_id from {table}")
        assert {str(row["job_id"]) for row in rows} <= {str(kept)}, table
    assert await checked_log(file_store, kept) == before
    await enqueue(file_store, idempotency_key="order:1", payload='{"n": 2}')


async def test_logs_may_stay(file_store: Store, shell: Shell) -> None:
    lease = await started(file_store, idempotency_key="order:1")
    approval = await file_store.approvals.request_approval(lease, new_approval())
    await file_store.leases.record(
        lease, [event(payload='{"kept": true}')], effects=[patch_state(checkpoint="[1]", tokens=3)]
    )
    await file_store.leases.finish(lease, outcome(S.COMPLETED))
    live = await run_to(file_store, S.PARKED)
    before, log = await file_store.jobs.get_job(lease.job_id), await checked_log(file_store, lease.job_id)
    runs = await file_store.jobs.list_runs(lease.job_id)
    await passed(file_store, before.finished_at)
    assert (before.payload, before.result, before.pruned_at) == ({"n": 1}, {"answer": 42}, None)
    for times in (1, 0):
        assert await file_store.retention.prune([lease.job_id, live], keep_logs=True) == times
    after = await file_store.jobs.get_job(lease.job_id)
    assert (after.payload, after.result, after.state.checkpoint) == (None, None, None)
    assert near(after.pruned_at, await file_store.now())
    assert after.state.tokens == 3
    assert await checked_log(file_store, lease.job_id) == log, "nothing is added to it, nothing taken"
    assert await file_store.jobs.list_runs(lease.job_id) == runs
    assert (await file_store.approvals.get_approval(approval.id)).payload == {"publish": "draft 1"}
    assert (await file_store.jobs.get_job(live)).payload == {"n": 1}
    stays = ("status", "version", "attempt", "finished_at", "updated_at", "idempotency_key", "note")
    assert [getattr(after, name) for name in stays] == [getattr(before, name) for name in stays]
    assert await found(file_store, PruneFilter(0, heavy=True)) == []
    assert await found(file_store, ALL) == [lease.job_id]
    assert await file_store.retention.prune([lease.job_id]) == 1
    for table in TABLES:
        rows = await shell.run(f"select job_id from {table}")
        assert {str(row["job_id"]) for row in rows} <= {str(live)}, table


async def test_two_that_prune_share_the_jobs(file_store: Store, twin: Store) -> None:
    ids = [await finished(file_store, S.CANCELLED) for _ in range(40)]
    done = await asyncio.gather(
        *(store.retention.prune(ids[n : n + 10]) for n in range(0, 40, 5) for store in (file_store, twin))
    )
    assert sum(done) == 40
    assert await found(file_store, ALL) == []


async def test_jobs_that_were_not_made_here_are_found_as_well(file_store: Store, shell: Shell) -> None:
    strange = [uuid4() for _ in range(5)]
    for id in strange:
        await shell.run(f"insert into jobs (id, kind) values ({shell.id(id)}, 'echo')")
        await file_store.jobs.cancel(id, note="{}")
        await passed(file_store, (await file_store.jobs.get_job(id)).finished_at)
    ours = await finished(file_store)
    assert await found(file_store, ALL) == sorted([*strange, ours])
    now = await file_store.now()
    early = await file_store.retention.list_prunable(ALL, before=first_id_of(now - timedelta(hours=1)))
    late = await file_store.retention.list_prunable(ALL, after=first_id_of(now + timedelta(hours=1)))
    assert ours not in {job.id for page in (early, late) for job in page.jobs}, "an id tells its age"


async def test_only_prune_deletes_jobs(file_store: Store, shell: Shell) -> None:
    done, live = await finished(file_store), await enqueue(file_store)
    for table, column in (("job_events", "job_id"), ("jobs", "id")):
        for id in (done, live):
            with pytest.raises(Refused, match="use perdure db prune"):
                await shell.run(f"delete from {table} where {column} = {shell.id(id)}")
        with pytest.raises(Refused):
            await shell.run(f"delete from {table}")
    await checked_log(file_store, done)
    await checked_log(file_store, live)


# Chores ---------------------------------------------------------------------------------------------------------------


async def test_one_leads_a_chore_at_a_time(store: Store) -> None:
    assert await store.retention.lead("retention", holder=WORKER, ttl=HOUR)
    assert not await store.retention.lead("retention", holder=OTHER, ttl=HOUR)
    assert await store.retention.lead("another", holder=OTHER, ttl=HOUR)
    assert await store.retention.lead("retention", holder=WORKER, ttl=0.001), "one's own is prolonged, or let go of"
    await passed(store, await store.now() + timedelta(seconds=0.002))
    assert await store.retention.lead("retention", holder=OTHER, ttl=HOUR)
    assert not await store.retention.lead("retention", holder=WORKER, ttl=HOUR)


async def test_of_many_that_want_to_lead_one_does(file_store: Store, twin: Store, neighbour: Store) -> None:
    stores = [file_store, twin] * 5
    taken = await asyncio.gather(
        *(s.retention.lead("retention", holder=f"w-{n}", ttl=HOUR) for n, s in enumerate(stores))
    )
    assert sum(taken) == 1
    assert await neighbour.retention.lead("retention", holder="w-99", ttl=HOUR), "tenants have chores of their own"


def a_worker(id: str, heartbeat: object = None) -> WorkerInfo:
    """Row of a worker; the heartbeat is the database's."""
    now = first = heartbeat  # register_worker reads the database's clock
    return WorkerInfo(id, "host", 1, ("default",), ("echo",), 10, WorkerState.RUNNING, now, first, True)  # type: ignore[arg-type]


async def test_workers_are_forgotten_when_long_gone(file_store: Store, shell: Shell) -> None:
    for id in ("gone", "holds", "here"):
        await file_store.workers.register_worker(a_worker(id))
    await shell.run(f"update workers set heartbeat_at = {shell.ago(2 * HOUR)} where id <> 'here'")
    lease = await started(file_store)
    await shell.run("update job_claims set worker_id = 'holds'")
    assert await file_store.retention.forget_workers(3 * HOUR) == 0
    assert await file_store.retention.forget_workers(HOUR) == 1
    assert {w.id for w in await file_store.workers.list_workers()} == {"holds", "here"}
    await shell.run(f"update job_claims set worker_id = '{WORKER}'")
    await run_out(file_store, lease)
    await file_store.leases.reap(worker_id=OTHER)
    assert await file_store.retention.forget_workers(HOUR) == 1


# Sizes ----------------------------------------------------------------------------------------------------------------


async def test_every_table_has_a_size(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        await finished(store)
    sizes = await store.figures.sizes()
    tables = {t.name: t for t in sizes.tables}
    assert {*TABLES, "jobs", "workers", "leaders", "schema_migrations"} <= set(tables)
    assert sizes.total_bytes > 0
    assert all(t.bytes is not None and t.index_bytes is not None for t in sizes.tables)
    assert {i.name for i in tables["jobs"].indexes} >= {"jobs_kind", "jobs_idempotency"}
    if tables["jobs"].exact:
        assert (tables["jobs"].rows, tables["job_events"].rows) == (5, 15)
        monkeypatch.setattr(sqlite_figures, "COUNT_UP_TO", 4)
        monkeypatch.setattr(sqlite_figures, "DBSTAT_UP_TO", 1)
        sizes = await store.figures.sizes()
        jobs = next(t for t in sizes.tables if t.name == "jobs")
        assert (jobs.rows, jobs.exact, jobs.at_least, jobs.bytes) == (4, False, True, None)


async def test_the_sizes_name_every_table_there_is(file_store: Store, shell: Shell) -> None:
    if shell.postgres:
        rows = await shell.run("select tablename as name from pg_tables where schemaname = 'perdure'")
    else:
        rows = await shell.run("select name from sqlite_master where type = 'table' and name not like 'sqlite_%'")
    assert {t.name for t in (await file_store.figures.sizes()).tables} == {row["name"] for row in rows}


async def test_a_mark_of_prune_opens_no_log_to_rewriting(file_store: Store, shell: Shell) -> None:
    """Ordinary rights suffice to write into prune_batch: then a part of a log could be deleted and written again."""
    done, live = await finished(file_store), await run_to(file_store, S.RUNNING)
    for id in (done, live):
        before = await checked_log(file_store, id)
        for forgery in (
            ["delete from job_events where job_id = {id} and version > 1"],
            ["delete from job_events where job_id = {id}"],
            [
                "delete from job_events where job_id = {id} and version = 2",
                (
                    "insert into job_events (job_id, version, type, "
                    "from_status, to_status) values ({id}, 2, 'run_started', 'PENDING', 'RUNNING')"
                ),
            ],
            ["delete from jobs where id = {id}"] if id == live else [],
        ):
            with case(forgery), contextlib.suppress(Refused):
                await shell.run("begin")
                await shell.run(f"insert into prune_batch (job_id) values ({shell.id(id)})")
                for statement in forgery:
                    await shell.run(statement.format(id=shell.id(id)))
                await shell.run("delete from prune_batch")
                await shell.run("commit")
            with contextlib.suppress(Exception):
                await shell.run("rollback")
            assert await checked_log(file_store, id) == before


async def test_the_memory_of_a_pruned_job_stays_and_other_jobs_leave_nothing(store: Store) -> None:
    types = ["message_appended", "tool_called", "usage_recorded"]

    async def one(*events: str) -> UUID:
        lease = await started(store)
        job_id = lease.job_id
        await store.leases.record(lease, [event(type) for type in events])
        await store.leases.finish(lease, outcome(S.COMPLETED))
        await passed(store, (await store.jobs.get_job(job_id)).finished_at)
        return job_id

    talked = await one("message_appended", "node_finished", "tool_called", "usage_recorded")
    silent = await one("node_finished", "usage_recorded")
    deleted = await one("message_appended")
    before = await store.jobs.list_events(talked, types=types)
    assert await store.retention.list_pruned_memory(talked, types=types) == []
    assert await store.retention.prune([talked, silent]) == 2
    assert await store.retention.prune([deleted], keep_memory=False) == 1
    assert await store.retention.list_pruned_memory(talked, types=types) == before
    assert (
        await store.retention.list_pruned_memory(talked, types=types, after=before[0].version, limit=1) == before[1:2]
    )
    assert await store.retention.list_pruned_memory(talked, types=["tool_called"]) == before[1:2]
    assert [await store.retention.list_pruned_memory(id, types=types) for id in (silent, deleted)] == [[], []]
    assert await store.tenant("other").retention.list_pruned_memory(talked, types=types) == []


async def test_messages_go_with_the_job_that_got_them_and_no_others(store: Store) -> None:
    await store.agents.create_agent(NewAgent("ann", "echo", queue=own_queue()))
    sent = [NewMessage(uuid7(), "ann", '"hello"'), NewMessage(uuid7(), "ann", '"later"', delay=HOUR)]
    job_id = (await store.agents.send(sent[0])).job_id
    await store.agents.send(sent[1])
    assert job_id is not None
    await store.leases.finish((await claim(store, job_id)).lease, outcome(S.COMPLETED))
    assert await store.retention.prune([job_id]) == 1
    assert [m.id for m in (await store.agents.list_messages("ann", "inbox")).items] == [sent[1].id]
    assert await fsck(store) == []


async def test_what_got_a_question_stays_while_its_sender_waits_for_the_reply(store: Store) -> None:
    await store.agents.create_agent(NewAgent("ann", "echo", queue=own_queue()))
    asking, question = await started(store), uuid7()
    ask = NewMessage(question, "ann", '"why?"', reply_channel=reply_channel_of(question))
    await store.leases.record(asking, [NewEvent("asked")], effects=[send_message(ask)])
    await store.agents.deliver("ann")
    got = (await store.agents.list_messages("ann", "inbox")).items[0].consumed_by_job_id
    assert got is not None
    await store.leases.finish((await claim(store, got)).lease, outcome(S.COMPLETED))
    old = PruneFilter(0)
    assert (await store.retention.list_prunable(old)).jobs == ()
    assert await store.retention.prune([got]) == 0
    await store.leases.finish(asking, outcome(S.COMPLETED))
    assert {job.id for job in (await store.retention.list_prunable(old)).jobs} == {asking.job_id, got}
    assert await store.retention.prune([got]) == 1
