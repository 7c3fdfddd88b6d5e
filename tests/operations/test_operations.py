"""Operations over every kind of store, through the public API; each raises only what it declares."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import App, Budget, Client, Fail, JobContext, Status, Unique
from perdure.model import errors
from perdure.model.events import Event
from perdure.model.fsck_faults import Finding
from perdure.model.ids import uuid7
from perdure.model.tooling import TaskSpec
from perdure.operations import (
    accounts,
    agents,
    approvals,
    bulk,
    control,
    database,
    diagnose,
    enqueue,
    export,
    follow,
    fsck,
    jobs,
    limits,
    memory,
    queues,
    schedules,
    signals,
    tasks,
    workers,
)
from perdure.operations.catalog import OPERATIONS
from perdure.operations.database import SchemaFit
from perdure.operations.errors import NoWorker
from perdure.operations.fsck import FsckSummary
from perdure.operations.selection import JobSelection
from perdure.operations.workers import Health

NO_ID = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    """An App with a few handlers, over each kind of store."""
    app = App(store_url, migrate=True)

    @app.job
    async def greet(ctx: JobContext, name: str) -> str:
        return await ctx.step("say", "hello {}".format, name)

    @app.job
    async def fails(ctx: JobContext) -> None:
        raise Fail("no such account")

    @app.job
    async def asks(ctx: JobContext) -> Any:
        return (await ctx.approve("sign", title="Sign?", payload={"draft": 1})).payload

    async with app:
        yield app


@pytest.fixture
def client(app: App) -> Client:
    return app.acting(actor="ann", via="test")


async def ran(app: App, kind: str, input: Any = None) -> str:
    """A job that has run as far as it goes."""
    id = (await enqueue.enqueue_job(app.client, kind, input)).id
    await app.work(once=True)
    return str(id)


async def test_a_job_from_its_enqueue_to_its_result(app: App, client: Client) -> None:
    first = await enqueue.enqueue_job(client, "greet", "ann", idempotency_key="k", goal="say hello", priority=7)
    again = await enqueue.enqueue_job(client, "greet", "ann", idempotency_key="k")
    assert (first.created, again) == (True, (first.id, False))
    id = str(first.id)
    assert (await jobs.explain_job(client, id)).status is Status.PENDING
    assert await jobs.count_jobs(client, by="queue") == {"default": 1}
    await app.work(once=True)
    assert (await follow.wait_for_job(client, id, timeout=10)).result == "hello ann"
    record = await jobs.get_job(client, id[-8:], include=("events", "runs", "approvals"))
    assert (record.job.priority, record.job.goal, len(record.runs), record.approvals) == (7, "say hello", 1, ())
    assert record.events[0].payload["actor"] == "ann"
    assert [step.key for step in await jobs.list_steps(client, id)] == ["say"]
    found = await jobs.list_events(client, id, after=1, types=("node_finished", "job_completed"))
    assert [event.type for event in found] == ["node_finished", "job_completed"]
    before = await jobs.get_job(client, id, at=1)
    assert (before.job.status, before.head, before.events) == (Status.PENDING, record.job.version, ())
    completed = await jobs.list_jobs(client, JobSelection(status=("completed",)))
    assert [job.id for job in completed.items] == [first.id]
    assert (await jobs.list_jobs(client, JobSelection(kind=("asks",)))).items == ()


async def test_events_are_passed_on_while_one_waits(app: App, client: Client) -> None:
    id = await ran(app, "greet", "ann")
    seen: list[str] = []

    async def on_event(event: Event) -> None:
        seen.append(event.type)

    job = await follow.wait_for_job(client, id, timeout=10, on_event=on_event)
    assert (job.status, seen[0], seen[-1]) == (Status.COMPLETED, "job_created", "job_completed")
    assert [e.type async for e in follow.follow_job(client, id, types=("node_finished",))] == ["node_finished"]


async def test_several_jobs_are_watched_until_all_are_finished(app: App, client: Client) -> None:
    finished = await ran(app, "greet", "ann")
    waiting = await ran(app, "asks")
    moments = []
    async for moment in follow.watch_jobs(client, (finished, waiting)):
        moments.append([job.status.value for job in moment.jobs])
        if len(moments) == 1:
            await control.cancel_job(client, waiting)
    assert moments[0] == ["COMPLETED", "WAITING_FOR_APPROVAL"]
    assert moments[-1] == ["COMPLETED", "CANCELLED"]
    assert [m async for m in follow.watch_jobs(client)] == []
    again = [m.jobs async for m in follow.watch_jobs(client, (finished, waiting), every=0.01)]
    assert [[job.status.value for job in seen] for seen in again] == [["COMPLETED", "CANCELLED"]]


async def test_watching_ends_where_the_caller_ends_it(app: App, client: Client) -> None:
    waiting = await ran(app, "asks")
    before = asyncio.all_tasks()
    async with contextlib.aclosing(follow.watch_jobs(client, (waiting,))) as seen:
        async for moment in seen:
            assert moment.changed in (None, 0)
            if moment.event is not None:
                break
    assert asyncio.all_tasks() <= before


async def test_approvals(app: App, client: Client) -> None:
    approved, denied = await ran(app, "asks"), await ran(app, "asks")
    listed = await jobs.list_jobs(client, with_approvals=True)
    assert {a.job_id for a in listed.asks} == {job.id for job in listed.items}
    assert len((await approvals.list_approvals(client, mine=True)).items) == 2
    [asked] = (await approvals.list_approvals(client, job_id=approved)).items
    assert (await approvals.get_approval(client, approved)).id == asked.id
    decision = await approvals.approve(client, str(asked.id), edited={"draft": 2}, expected_digest=asked.payload_digest)
    assert (decision.decided_by, decision.decided_via, decision.edited) == ("ann", "test", True)
    token = await approvals.new_token(client, denied)
    assert (await approvals.deny(client, token=token.token, by="bob")).id == token.approval_id
    await app.work(once=True)
    assert (await follow.wait_for_job(client, approved)).result == {"draft": 2}
    assert (await jobs.get_job(client, denied)).job.error_kind == "denied"


async def test_control(app: App, client: Client) -> None:
    failed = await ran(app, "fails")
    new = await control.rerun_job(client, failed, reason="once more")
    assert (str(new.origin_id), new.origin_kind, new.note["reason"]) == (failed, "rerun", "once more")
    assert (await control.cancel_job(client, str(new.id))).status is Status.CANCELLED
    later = await enqueue.enqueue_job(client, "greet", "bob", delay="1h")
    await control.retry_job_now(client, str(later.id))
    await app.work(once=True)
    assert (await jobs.get_job(client, str(later.id))).job.status is Status.COMPLETED
    fork = await control.fork_job(client, str(later.id), changes={"": "eve"})
    assert (fork.origin_id, fork.kept) == (later.id, 1)
    assert (await jobs.get_job(client, str(fork.id))).job.payload == "eve"
    assert (await jobs.diff_jobs(client, str(later.id), str(fork.id))).input


async def test_workers(app: App, client: Client) -> None:
    worker = await app.worker()
    running = asyncio.create_task(worker.run())
    while not (found := await workers.list_workers(client)):
        await asyncio.sleep(0.01)
    assert [workers.health_of(w) for w in found] == [Health.RUNNING]
    asked = await workers.drain_worker(client)
    assert asked.worker_ids == (found[0].id,)
    await running
    assert await workers.list_workers(client) == []
    [left] = await workers.list_workers(client, include_stopped=True)
    assert workers.health_of(left) is Health.STOPPED
    assert (await workers.stop_worker(client, all=True)).worker_ids == ()


async def test_the_database(app: App, client: Client, tmp_path: Path) -> None:
    assert (await database.migrate_database(client)).applied == ()
    status = await database.database_status(client)
    assert (status.verdict, status.schema, status.sizes is None) == (SchemaFit.OK, status.needed, False)
    assert (await database.database_status(client, with_sizes=False)).sizes is None
    await ran(app, "fails")
    checks = {check.name: check.status async for check in diagnose.diagnose(client)}
    assert checks == {**dict.fromkeys(("database", "server", "schema", "clock", "jobs"), "ok"), "workers": "warning"}
    for check in (fsck.check_database, fsck.repair_database):
        found = [item async for item in check(client)]
        assert isinstance(found[-1], FsckSummary)
        assert (found[-1].jobs, found[-1].remaining) == (1, 0)
        assert all(isinstance(item, Finding) and item.note for item in found[:-1])
    records = [record["record"] async for record in export.export_jobs(client, redact=True)]
    assert (records[0], records[-1]) == ("job", "end")
    assert await export.write_records(export.export_jobs(client), tmp_path / "jobs.jsonl.gz") == 1
    assert [file.name for file in tmp_path.glob("*jsonl*")] == ["jobs.jsonl.gz"]
    assert await database.prune_jobs(client, older_than=timedelta(hours=1), dry_run=True) == 0
    reached: list[int] = []
    assert await database.prune_jobs(client, older_than=0, on_batch=reached.append) == 1
    assert reached == [1]


Call = Callable[[App, Client], Awaitable[Any]]


async def consumed(stream: AsyncIterator[Any]) -> None:
    async for _ in stream:
        pass


async def decided(app: App, client: Client) -> Any:
    id = await ran(app, "asks")
    await approvals.deny(client, id)
    return await approvals.approve(client, id)


async def changed(app: App, client: Client) -> Any:
    return await approvals.approve(client, await ran(app, "asks"), expected_digest="0" * 64)


async def conflicting(app: App, client: Client) -> Any:
    await enqueue.enqueue_job(client, "greet", "ann", idempotency_key="k")
    return await enqueue.enqueue_job(client, "greet", "bob", idempotency_key="k")


async def taken(app: App, client: Client) -> Any:
    await enqueue.enqueue_job(client, "greet", "ann", unique=Unique("k"))
    return await enqueue.enqueue_job(client, "greet", "ann", unique=Unique("k", on_conflict="refuse"))


async def cancelled_twice(app: App, client: Client) -> Any:
    return await control.cancel_job(client, await ran(app, "fails"))


async def failed(app: App, client: Client) -> Any:
    return await follow.wait_for_job(client, await ran(app, "fails"))


async def too_long(app: App, client: Client) -> Any:
    id = await ran(app, "asks")

    async def ignore(event: Event) -> None:
        del event

    return await follow.wait_for_job(client, id, timeout=0.01, on_event=ignore)


async def without_file(app: App, client: Client) -> Any:
    task = await tasks.enqueue_task(client, TaskSpec("codex", "hello"))
    return await tasks.copy_task_file(client, str(task.id), "a.txt", on_piece=io.BytesIO().write)


async def requeued_too_early(app: App, client: Client) -> Any:
    task = await tasks.enqueue_task(client, TaskSpec("codex", "hello"))
    return await tasks.requeue_task(client, str(task.id))


async def added_twice(app: App, client: Client) -> Any:
    await accounts.add_account(client, "a", "codex")
    return await accounts.add_account(client, "a", "codex")


DAYS = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))

REFUSED: list[tuple[str, type[errors.PerdureError], Call]] = [
    ("jobs.enqueue", errors.UnknownHandler, lambda a, c: enqueue.enqueue_job(c, "gret")),
    ("jobs.enqueue", errors.InvalidPriority, lambda a, c: enqueue.enqueue_job(c, "greet", "x", priority=10)),
    ("jobs.enqueue", errors.IdempotencyConflict, conflicting),
    ("jobs.enqueue", errors.UniqueConflict, taken),
    ("agents.list", errors.InvalidInput, lambda a, c: agents.list_agents(c, status="tired")),
    ("agents.get", errors.AgentNotFound, lambda a, c: agents.get_agent(c, "ann")),
    ("agents.create", errors.InvalidInput, lambda a, c: agents.create_agent(c, "a b")),
    ("agents.set", errors.AgentNotFound, lambda a, c: agents.set_agent(c, "ann", batch=2)),
    ("agents.send", errors.AgentNotFound, lambda a, c: agents.send_message(c, "ann", "hello")),
    ("agents.inbox", errors.AgentNotFound, lambda a, c: agents.list_inbox(c, "ann")),
    ("agents.outbox", errors.AgentNotFound, lambda a, c: agents.list_outbox(c, "ann")),
    ("agents.signal", errors.AgentNotFound, lambda a, c: agents.signal_agent(c, "ann", "stop")),
    ("agents.signals", errors.AgentNotFound, lambda a, c: agents.list_agent_signals(c, "ann")),
    ("agents.session", errors.NotFound, lambda a, c: agents.get_session(c, "ann")),
    ("agents.sessions", errors.AgentNotFound, lambda a, c: agents.list_sessions(c, "ann")),
    ("agents.set_session", errors.AgentNotFound, lambda a, c: agents.set_session(c, "ann", 1)),
    ("agents.pause", errors.AgentNotFound, lambda a, c: agents.pause_agent(c, "ann")),
    ("agents.delete", errors.AgentNotFound, lambda a, c: agents.delete_agent(c, "ann")),
    ("agents.resume", errors.AgentNotFound, lambda a, c: agents.resume_agent(c, "ann")),
    ("approvals.rules", errors.InvalidInput, lambda a, c: approvals.list_rules(c, scope="none")),
    ("approvals.add_rule", errors.InvalidInput, lambda a, c: approvals.add_rule(c, "deploy", "maybe", scope="tenant")),
    ("approvals.revoke_rule", errors.ApprovalRuleNotFound, lambda a, c: approvals.revoke_rule(c, "abcdef")),
    ("queues.pause", errors.InvalidInput, lambda a, c: queues.pause_queue(c, "*")),
    ("queues.resume", errors.InvalidInput, lambda a, c: queues.resume_queue(c, "a b")),
    ("queues.pauses", errors.InvalidInput, lambda a, c: queues.list_pauses(c, limit=0)),
    ("schedules.get", errors.NotFound, lambda a, c: schedules.get_schedule(c, "none")),
    ("schedules.next", errors.NotFound, lambda a, c: schedules.next_times(c, "none")),
    ("schedules.next", errors.InvalidInput, lambda a, c: schedules.next_times(c, "none", 0)),
    ("schedules.add", errors.InvalidInput, lambda a, c: schedules.add_schedule(c, "s", "greet", "x", every=0)),
    ("schedules.add", errors.UnknownHandler, lambda a, c: schedules.add_schedule(c, "s", "gret", "x", every=5)),
    ("schedules.add", errors.NotJson, lambda a, c: schedules.add_schedule(c, "s", "greet", object(), every=5)),
    ("schedules.add", errors.TooLarge, lambda a, c: schedules.add_schedule(c, "s", "greet", "x" * 2**21, every=5)),
    (
        "schedules.add",
        errors.InvalidPriority,
        lambda a, c: schedules.add_schedule(c, "s", "greet", "x", every=5, priority=0),
    ),
    ("schedules.pause", errors.NotFound, lambda a, c: schedules.pause_schedule(c, "none")),
    ("schedules.resume", errors.NotFound, lambda a, c: schedules.resume_schedule(c, "none")),
    ("schedules.trigger", errors.NotFound, lambda a, c: schedules.trigger_schedule(c, "none")),
    ("schedules.backfill", errors.NotFound, lambda a, c: schedules.backfill_schedule(c, "none", *DAYS)),
    ("schedules.backfill", errors.InvalidInput, lambda a, c: schedules.backfill_schedule(c, "none", *reversed(DAYS))),
    ("schedules.remove", errors.NotFound, lambda a, c: schedules.remove_schedule(c, "none")),
    ("memory.search", errors.EmptyQuery, lambda a, c: memory.search_memory(c, " ")),
    ("memory.write", errors.UnknownScope, lambda a, c: memory.write_memory(c, "x", scope="planet:9")),
    ("memory.get", errors.NotFound, lambda a, c: memory.get_memory(c, str(uuid7()))),
    ("memory.list", errors.InvalidInput, lambda a, c: memory.list_memory(c, cursor="x")),
    ("memory.supersede", errors.NotFound, lambda a, c: memory.supersede_memory(c, str(uuid7()), "x")),
    ("memory.archive", errors.NotFound, lambda a, c: memory.archive_memory(c, str(uuid7()))),
    ("memory.restore", errors.NotFound, lambda a, c: memory.restore_memory(c, str(uuid7()))),
    ("memory.pin", errors.AmbiguousId, lambda a, c: memory.pin_memory(c, "12")),
    ("memory.export", errors.UnknownScope, lambda a, c: consumed(memory.export_memory(c, scope=["x"]))),
    ("memory.import", errors.InvalidInput, lambda a, c: memory.import_memory(c, ["{}"])),
    ("memory.reindex", errors.UnknownScope, lambda a, c: memory.reindex_memory(c, scope=["x"])),
    ("memory.undo", errors.JobNotFound, lambda a, c: memory.undo_memory(c, str(uuid7()))),
    ("limits.get", errors.InvalidInput, lambda a, c: limits.get_limit(c, "")),
    ("limits.set", errors.InvalidInput, lambda a, c: limits.set_limit(c, "k", -1)),
    ("limits.set_budget", errors.InvalidBudget, lambda a, c: limits.set_budget(c, Budget())),
    ("limits.set_budget", errors.InvalidInput, lambda a, c: limits.set_budget(c, Budget(tokens=1), agent="")),
    ("limits.unset", errors.InvalidInput, lambda a, c: limits.unset_limit(c, "")),
    ("jobs.list", errors.InvalidInput, lambda a, c: jobs.list_jobs(c, JobSelection(status=("gone",)))),
    ("jobs.get", errors.JobNotFound, lambda a, c: jobs.get_job(c, NO_ID)),
    ("jobs.get", errors.JobNotFound, lambda a, c: jobs.get_job(c, "aaaaaaaa")),
    ("jobs.count", errors.InvalidInput, lambda a, c: jobs.count_jobs(c, JobSelection(status=("gone",)))),
    ("jobs.events", errors.JobNotFound, lambda a, c: jobs.list_events(c, NO_ID)),
    ("jobs.steps", errors.JobNotFound, lambda a, c: jobs.list_steps(c, NO_ID)),
    ("jobs.messages", errors.JobNotFound, lambda a, c: jobs.list_messages(c, NO_ID)),
    ("jobs.actions", errors.JobNotFound, lambda a, c: jobs.list_actions(c, NO_ID)),
    ("jobs.variables", errors.JobNotFound, lambda a, c: jobs.list_variables(c, NO_ID)),
    ("jobs.explain", errors.JobNotFound, lambda a, c: jobs.explain_job(c, NO_ID)),
    ("jobs.tree", errors.JobNotFound, lambda a, c: jobs.tree_of_job(c, NO_ID)),
    ("jobs.batch", errors.JobNotFound, lambda a, c: jobs.batch_of_job(c, NO_ID)),
    ("jobs.tree", errors.InvalidInput, lambda a, c: jobs.tree_of_job(c, NO_ID, limit=0)),
    ("jobs.diff", errors.JobNotFound, lambda a, c: jobs.diff_jobs(c, NO_ID, NO_ID)),
    ("jobs.follow", errors.JobNotFound, lambda a, c: consumed(follow.follow_job(c, NO_ID))),
    ("jobs.wait", errors.JobFailed, failed),
    ("jobs.wait", errors.WaitTimeout, too_long),
    ("jobs.watch", errors.JobNotFound, lambda a, c: consumed(follow.watch_jobs(c, (NO_ID,)))),
    (
        "jobs.watch",
        errors.InvalidInput,
        lambda a, c: consumed(follow.watch_jobs(c, (NO_ID,), which=JobSelection(kind=("x",)))),
    ),
    ("jobs.cancel", errors.IllegalTransition, cancelled_twice),
    ("jobs.retry_now", errors.JobNotFound, lambda a, c: control.retry_job_now(c, NO_ID)),
    ("jobs.rerun", errors.JobNotFound, lambda a, c: control.rerun_job(c, NO_ID)),
    ("jobs.fork", errors.JobNotFound, lambda a, c: control.fork_job(c, NO_ID)),
    ("jobs.edit", errors.JobNotFound, lambda a, c: control.edit_job(c, NO_ID, priority=1)),
    ("jobs.edit", errors.InvalidPriority, lambda a, c: control.edit_job(c, NO_ID, priority=10)),
    ("jobs.edit", errors.InvalidInput, lambda a, c: control.edit_job(c, NO_ID)),
    ("jobs.delete", errors.JobNotFound, lambda a, c: control.delete_job(c, NO_ID)),
    ("jobs.cancel_many", errors.InvalidInput, lambda a, c: bulk.cancel_jobs(c, JobSelection())),
    ("jobs.retry_many", errors.InvalidInput, lambda a, c: bulk.retry_jobs(c, JobSelection(status=("failed",)))),
    ("jobs.rerun_many", errors.InvalidInput, lambda a, c: bulk.rerun_jobs(c, JobSelection(status=("running",)))),
    ("jobs.edit_many", errors.InvalidInput, lambda a, c: bulk.edit_jobs(c, JobSelection(kind=("greet",)))),
    ("jobs.delete_many", errors.InvalidInput, lambda a, c: bulk.delete_jobs(c, JobSelection(status=("running",)))),
    ("jobs.signal", errors.JobNotFound, lambda a, c: signals.signal_job(c, NO_ID, "paid")),
    ("jobs.signal", errors.InvalidInput, lambda a, c: signals.signal_job(c, NO_ID, "")),
    ("jobs.export", errors.JobNotFound, lambda a, c: consumed(export.export_jobs(c, (NO_ID,)))),
    ("tasks.enqueue", errors.UnknownTool, lambda a, c: tasks.enqueue_task(c, TaskSpec("nosuch", "hello"))),
    (
        "tasks.enqueue",
        errors.AccountNotFound,
        lambda a, c: tasks.enqueue_task(c, TaskSpec("codex", "hello", account="nosuch")),
    ),
    (
        "tasks.list",
        errors.InvalidInput,
        lambda a, c: tasks.list_tasks(c, JobSelection(status=("gone",)), tools=("codex",)),
    ),
    ("tasks.get", errors.JobNotFound, lambda a, c: tasks.get_task(c, NO_ID)),
    ("tasks.files", errors.JobNotFound, lambda a, c: tasks.list_task_files(c, NO_ID)),
    ("tasks.copy_file", errors.FileNotFound, without_file),
    ("tasks.output", errors.JobNotFound, lambda a, c: tasks.read_task_output(c, NO_ID)),
    ("tasks.requeue", errors.IllegalTransition, requeued_too_early),
    ("accounts.add", errors.AccountExists, added_twice),
    ("accounts.add", errors.InvalidAccount, lambda a, c: accounts.add_account(c, "a", "codex", max_concurrency=-1)),
    ("accounts.get", errors.AccountNotFound, lambda a, c: accounts.get_account(c, "x")),
    ("accounts.enable", errors.AccountNotFound, lambda a, c: accounts.enable_account(c, "x")),
    ("accounts.disable", errors.AccountNotFound, lambda a, c: accounts.disable_account(c, "x")),
    (
        "accounts.set_limits",
        errors.AccountNotFound,
        lambda a, c: accounts.set_account_limits(c, "x", max_concurrency=1),
    ),
    ("accounts.test", errors.AccountNotFound, lambda a, c: accounts.check_account(c, "x")),
    ("accounts.remove", errors.AccountNotFound, lambda a, c: accounts.remove_account(c, "x")),
    ("approvals.list", errors.InvalidInput, lambda a, c: approvals.list_approvals(c, status=("gone",))),
    ("approvals.get", errors.ApprovalNotFound, lambda a, c: approvals.get_approval(c, NO_ID)),
    ("approvals.approve", errors.AlreadyDecided, decided),
    ("approvals.approve", errors.ApprovalChanged, changed),
    ("approvals.deny", errors.WrongToken, lambda a, c: approvals.deny(c, token="x")),
    ("approvals.deny", errors.InvalidInput, lambda a, c: approvals.deny(c)),
    ("approvals.new_token", errors.ApprovalNotFound, lambda a, c: approvals.new_token(c, NO_ID)),
    ("workers.stop", NoWorker, lambda a, c: workers.stop_worker(c)),
    ("workers.stop", errors.WorkerNotFound, lambda a, c: workers.stop_worker(c, "w-0000000000")),
    ("workers.drain", errors.InvalidInput, lambda a, c: workers.drain_worker(c, "w-0000000000", all=True)),
    ("database.backup", errors.InvalidInput, lambda a, c: database.backup_database(c, "/")),
    ("database.prune", errors.InvalidInput, lambda a, c: database.prune_jobs(c, older_than=0, status=("running",))),
]
"""An operation, an error it raises, and a call that raises it."""


@pytest.mark.parametrize("store_url", ["memory", "sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize(("name", "error", "call"), REFUSED, ids=[f"{n}-{e.__name__}" for n, e, _ in REFUSED])
async def test_it_raises_what_it_declares(
    app: App, client: Client, name: str, error: type[errors.PerdureError], call: Call
) -> None:
    with pytest.raises(error) as raised:
        await call(app, client)
    assert raised.type is error
    assert OPERATIONS[name].declares(raised.value)


def test_every_declared_error_group_has_a_call_that_raises_it() -> None:
    silent = {o.name for o in OPERATIONS.values() if o.errors} - {name for name, _, _ in REFUSED}
    assert silent == set()
