"""explain: why a job is not moving, and whether what it says would move it does."""

import asyncio
import shlex
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import App, Backoff, Fail, Handle, JobContext, Retry, Snooze, Status
from perdure.cli.main import root
from perdure.model.effects import open_wait
from perdure.model.errors import JobNotFound
from perdure.model.explanation import MOST_AHEAD, Explanation, Why
from perdure.model.ids import uuid7
from perdure.model.jobs import Outcome, Wait
from perdure.model.messages import wanted_text
from perdure.model.timing import when
from perdure.model.workers import WorkerCommand, WorkerInfo, WorkerState
from perdure.store.protocol import Store
from tests.conformance.sql_shell import open_shell
from tests.conformance.support import HOUR, claim, later, new_approval, new_job, passed, run_out
from tests.runtime.support import PATIENCE, chores, ended, lease_of, pending, reached, until, working

DAY = 24 * HOUR + 60
START = "perdure worker start --app module:attr"


@pytest.fixture
async def damaged(file_store_url: str) -> AsyncIterator[App]:
    """An App whose jobs a test damages: nothing is checked at its end."""
    async with App(file_store_url, migrate=True) as app:
        yield app


async def employ(store: Store, name: str = "larch", **changes: Any) -> str:
    """A worker as a row: alive for 15 s without a process behind it. Its id is unique among all tests."""
    id, now = f"w-{store.tenant_id}-{name}", await store.now()
    fields: dict[str, Any] = {
        "host": "larch",
        "pid": 7,
        "queues": ("default",),
        "kinds": ("echo",),
        "concurrency": 2,
        "state": WorkerState.RUNNING,
        "started_at": now,
        "heartbeat_at": now,
        "alive": True,
    }
    await store.workers.register_worker(WorkerInfo(id=id, **{**fields, **changes}))
    return id


async def keep_alive(app: App) -> None:
    """This machine may be so busy that 15 s pass in a test: only who is meant to be silent shall be it."""
    store = await app.open()
    for worker in await store.workers.list_workers():
        if await store.now() - worker.heartbeat_at < timedelta(hours=1):
            await store.workers.beat_worker(worker.id, state=worker.state)


async def echo(app: App, **options: Any) -> Handle[Any]:
    return await app.enqueue("echo", 1, **{"elsewhere": True, **options})


def commands(found: Explanation) -> list[str]:
    """The command lines it proposes, each of which can be read: the command and its options exist."""
    for move in found.moves:
        assert move.what
        program, noun, *rest = shlex.split(move.command)
        assert program == "perdure"
        known = root().get_command(None, noun)
        if hasattr(known, "list_commands"):
            known = known.get_command(None, rest.pop(0))
        options = {o for p in known.params for o in p.opts}
        assert {word for word in rest if word.startswith("-")} <= options, move.command
    return [move.command for move in found.moves]


async def why(app: App, job: Handle[Any], code: Why, *says: str) -> Explanation:
    """The explanation, which has this code and says these words."""
    await keep_alive(app)
    found = await app.jobs.explain(job.id)
    assert found.code is code, found.sentence
    for words in says:
        assert words in found.sentence, found.sentence
    stands = await job.get()
    assert (found.job_id, found.kind, found.queue, found.status) == (job.id, stands.kind, stands.queue, stands.status)
    assert found.sentence[0].isupper() or found.sentence[0] == "'"
    assert "  " not in found.sentence
    commands(found)
    return found


# -- due, and who could take it ----------------------------------------------------------------------------------------------


async def test_no_worker_serves_the_queue(app: App) -> None:
    store = await app.open()
    job = await echo(app)
    found = await why(app, job, Why.NO_WORKER, "no live worker serves queue 'default'", "It has been due for ")
    assert commands(found) == [START]
    slow = await echo(app, queue="slow_and_'odd'")
    await employ(store)
    found = await why(app, slow, Why.NO_WORKER)
    assert shlex.split(commands(found)[0])[-2:] == ["--queues", "slow_and_'odd'"]
    assert (await why(app, job, Why.QUEUED)).moves == ()


async def test_a_lost_worker_of_the_queue_is_named(file_app: App) -> None:
    store = await file_app.open()
    job = await echo(file_app)
    gone = await employ(store)
    async with open_shell(file_app.settings["database_url"]) as shell:
        await shell.run(f"update workers set heartbeat_at = {shell.ago(DAY)}")
    await store.workers.beat_worker(
        await employ(store, "birch"), state=WorkerState.STOPPED
    )  # a later one, which left in order
    said = f"The last one, worker {gone} (process 7 on larch), sent its last heartbeat at"
    found = await why(file_app, job, Why.NO_WORKER, said, "(24h ago), and did not stop in order.")
    assert found.details["last_worker"] == gone


async def test_no_worker_has_the_handler(app: App) -> None:
    store = await app.open()
    job = await echo(app)
    other = await employ(store, kinds=("research", "digest"))
    found = await why(app, job, Why.NO_HANDLER, "has a handler for kind 'echo'", "They have: digest, research")
    assert found.details["serving"] == [other]
    assert found.moves[0].what == "start a worker whose App has the handler 'echo'"
    await employ(store, "birch")
    assert (await app.jobs.explain(job.id)).code is Why.QUEUED


async def test_left_by_a_worker_that_does_not_know_the_kind(app: App) -> None:
    @app.job
    async def other(ctx: JobContext) -> None: ...

    job = await echo(app)
    async with working(app):
        await (await app.enqueue(other, priority=1)).result(PATIENCE)
        found = await why(
            app, job, Why.NO_HANDLER, "but no live worker of queue 'default' has a handler for kind 'echo'"
        )
    assert commands(found) == [START]


async def test_workers_that_take_no_more(app: App) -> None:
    store = await app.open()
    job = await echo(app)
    larch = await employ(store)
    await store.workers.beat_worker(larch, state=WorkerState.DRAINING)
    found = await why(app, job, Why.WORKERS_DRAINING, "the 1 worker that serves queue 'default' is draining")
    assert (found.details["draining"], commands(found)) == ([larch], [START])
    birch = await employ(store, "birch")
    assert (await app.jobs.explain(job.id)).code is Why.QUEUED
    await app.workers.command(birch, WorkerCommand.DRAIN)
    await why(app, job, Why.WORKERS_DRAINING, "the 2 workers that serve queue 'default' are draining")


async def test_slots_and_the_place_in_the_queue(app: App) -> None:
    store = await app.open()
    larch = await employ(store, concurrency=3)
    await employ(store, "other", kinds=("research",), concurrency=50)
    for _ in range(2):
        await claim(store, (await echo(app)).id, worker_id=larch)
    job = await echo(app, priority=3)
    found = await why(app, job, Why.QUEUED, "1 of 3 slots of 1 worker for it are free", "It is the next in line")
    assert (found.details["workers"], found.details["busy"], found.details["ahead"]) == ([larch], 2, 0)
    await claim(store, (await echo(app, priority=9)).id, worker_id=larch)
    found = await why(app, job, Why.WORKERS_BUSY, "all 3 slots of the 1 worker for it are busy")
    assert commands(found) == [START]
    await echo(app, priority=9)
    assert "1 job is ahead of it" in (await app.jobs.explain(job.id)).sentence
    await echo(app, priority=3)
    await echo(app, priority=1)
    await echo(app, priority=9, delay="50h")
    await echo(app, priority=9, queue="slow")
    assert (await app.jobs.explain(job.id)).details["ahead"] == 1, (
        "later, less urgent, delayed ones and other queues' come after"
    )


async def test_more_jobs_ahead_than_are_counted(app: App) -> None:
    store = await app.open()
    await store.jobs.enqueue_many([new_job(priority=7) for _ in range(MOST_AHEAD // 2)])
    middle = await echo(app, priority=5)
    await store.jobs.enqueue_many([new_job(priority=5) for _ in range(MOST_AHEAD)])
    last = await echo(app, priority=5)
    assert (await app.jobs.explain(middle.id)).details["ahead"] == MOST_AHEAD // 2
    found = await why(app, last, Why.NO_WORKER, "at least 1,000 jobs are ahead of it")
    assert (found.details["ahead"], found.details["more_ahead"]) == (MOST_AHEAD, True)


async def test_long_overdue_although_a_slot_is_free(file_app: App) -> None:
    store = await file_app.open()
    await employ(store)
    job = await echo(file_app)
    async with open_shell(file_app.settings["database_url"]) as shell:
        await shell.run(f"update job_queue set run_at = {shell.ago(DAY)}")
    found = await why(file_app, job, Why.QUEUED, "due for 24h", "it should have started by now")
    assert commands(found) == ["perdure doctor"]


# -- not due yet -------------------------------------------------------------------------------------------------------------


async def test_delayed_until(app: App) -> None:
    await employ(await app.open())
    job = await echo(app, delay="50h")
    found = await why(app, job, Why.DELAYED, "It was enqueued to start at", "UTC (in 2d)")
    assert found.details == {"due_at": (await job.get()).run_at}
    assert commands(found) == [f"perdure jobs retry-now {job.id.hex[-8:]}"]
    await app.jobs.retry_now(job.id)
    await why(app, job, Why.QUEUED)


async def test_a_job_that_no_worker_could_start_when_it_is_due_says_so(app: App) -> None:
    job = await echo(app, delay="50h")
    found = await why(app, job, Why.DELAYED, "Even then it could not start: no live worker serves queue 'default'.")
    assert found.details["then"] == "no_worker"
    assert commands(found)[-1] == START


async def test_in_backoff(app: App) -> None:
    @app.job(max_retries=3, backoff=Backoff(base="50h", cap="50h", jitter=0))
    async def breaks(ctx: JobContext) -> None:
        raise ValueError("empty source list")

    job = await app.enqueue(breaks)
    async with working(app):
        await reached(job, Status.RETRY)
        found = await why(app, job, Why.BACKOFF, "ValueError: empty source list", "Retry 1 of 3 is due at", "(in 2d)")
        assert (found.details["retry"], found.details["max_retries"]) == (1, 3)
        assert commands(found) == [f"perdure jobs retry-now {job.id.hex[-8:]}"]
        await app.jobs.retry_now(job.id)

        async def again() -> bool:
            return (await job.get()).retry_count == 2

        await until(again)
        await reached(job, Status.RETRY)
        assert "Retry 2 of 3" in (await app.jobs.explain(job.id)).sentence


async def test_put_off_at_no_retry(app: App) -> None:
    @app.job
    async def waits(ctx: JobContext) -> None:
        raise Snooze("8h", "office hours only")

    job = await app.enqueue(waits)
    async with working(app):
        await reached(job, Status.RETRY)
        found = await why(app, job, Why.PUT_OFF, "ended (office hours only) without using a retry; the next is due at")
    assert found.details["reason"] == "office hours only"


async def test_an_attempt_that_is_due(app: App) -> None:
    @app.job(backoff=Backoff(base="50h", cap="50h", jitter=0))
    async def breaks(ctx: JobContext) -> None:
        raise Retry("later", after="50h")

    job = await app.enqueue(breaks)
    async with working(app):
        await reached(job, Status.RETRY)
    await app.jobs.retry_now(job.id)
    await why(app, job, Why.NO_WORKER, "Its next attempt has been due for")


async def test_put_aside_by_a_claim_that_failed(damaged: App) -> None:
    store = await damaged.open()
    job = await echo(damaged)
    async with open_shell(damaged.settings["database_url"]) as shell:
        await shell.run(f"insert into job_events (job_id, version, type) values ({shell.id(job.id)}, 2, 'by hand')")
    assert await store.leases.claim(worker_id="w", queue="default", kinds={"echo": 3}, limit=1, ttl=30) == []
    found = await why(damaged, job, Why.PUT_ASIDE, "the database refused that; the next claim is at")
    assert commands(found)[0] == f"perdure jobs events {job.id.hex[-8:]}"


async def test_past_its_deadline(app: App) -> None:
    job = await echo(app, delay="50h", deadline=datetime.now(UTC) - timedelta(minutes=1))
    found = await why(
        app, job, Why.DEADLINE_PASSED, "Its deadline passed at", "the next worker fails it, and none is alive"
    )
    assert commands(found) == [START]
    await employ(await app.open(), queues=("other",))
    found = await why(app, job, Why.DEADLINE_PASSED, "a live worker fails it within seconds")
    assert found.moves == ()
    await chores(app)
    await why(app, job, Why.FAILED, "deadline passed")


# -- suspended ---------------------------------------------------------------------------------------------------------------


async def test_asleep(app: App) -> None:
    @app.job
    async def naps(ctx: JobContext) -> None:
        async with asyncio.TaskGroup() as naps:
            naps.create_task(ctx.sleep("long", "60h"))
            naps.create_task(ctx.sleep("nap", "50h"))

    job = await app.enqueue(naps)
    async with working(app):
        await reached(job, Status.PARKED)
        found = await why(app, job, Why.SLEEPING, "It sleeps: timer 'nap' ends at", "UTC (in 2d)", "(the first of 2)")
    assert [t["key"] for t in found.details["timers"]] == ["nap", "long"]
    assert found.moves == (), "time moves it"


async def test_asleep_while_its_worker_waits(app: App) -> None:
    store = await app.open()
    larch = await employ(store)
    job = await echo(app)
    lease = (await claim(store, job.id, worker_id=larch)).lease
    await store.leases.record(lease, [], effects=[open_wait(Wait("blink", "timer", await later(store, 60)))])
    await store.leases.set_waiting(lease, True)
    await why(app, job, Why.SLEEPING, "timer 'blink' ends at", f"worker {larch} (process 7 on larch) keeps its lease")


async def test_awake_and_waiting_for_a_worker(app: App) -> None:
    store = await app.open()
    job = await echo(app)
    lease = (await claim(store, job.id)).lease
    soon_over = await later(store, 0.05)
    await store.leases.record(lease, [], effects=[open_wait(Wait("blink", "timer", soon_over))])
    await store.leases.finish(lease, Outcome(Status.PARKED))
    await passed(store, soon_over)
    await why(app, job, Why.NO_WORKER, "Timer 'blink' ended at", "and no live worker")


async def test_waiting_for_a_person(app: App) -> None:
    @app.job
    async def asks(ctx: JobContext) -> str | None:
        options: dict[str, Any] = {"assignees": ["ann", "bob"], "expires_in": "50h", "on_expiry": "deny"}
        return (await ctx.approve("publish", title="Publish this?", **options)).by

    job = await app.enqueue(asks)
    async with working(app):
        await reached(job, Status.WAITING_FOR_APPROVAL)
        approval = await pending(app, job)
        found = await why(
            app,
            job,
            Why.APPROVAL,
            f"'Publish this?' (approval …{approval.short_id}, asked at",
            "is to be decided by ann or bob; it expires at",
            "(in 2d), then it counts as denied.",
        )
        assert commands(found) == [f"perdure approvals {v} {approval.short_id} --by ann" for v in ("approve", "deny")]
        assert [a["id"] for a in found.details["approvals"]] == [approval.id]
    await app.approve(approval.id, by="bob")
    await why(app, job, Why.NO_WORKER, "'publish' was approved by bob at")
    async with working(app):
        assert (await ended(app, job)).result == "bob"
    await why(app, job, Why.COMPLETED)


async def test_waiting_for_a_person_and_a_timer(app: App) -> None:
    @app.job
    async def both(ctx: JobContext) -> None:
        async with asyncio.TaskGroup() as branches:
            branches.create_task(ctx.approve("one", title="One?"))
            branches.create_task(ctx.sleep("nap", "50h"))

    job = await app.enqueue(both)
    async with working(app):
        await reached(job, Status.WAITING_FOR_APPROVAL)
        await why(app, job, Why.APPROVAL, "'One?'", "is to be decided. At the same time timer 'nap' ends at")


async def test_asked_what_happened(app: App) -> None:
    store = await app.open()
    job = await echo(app)
    lease = (await claim(store, job.id)).lease
    asked = await store.approvals.request_approval(lease, new_approval("post?1", kind="question"))
    await store.leases.finish(lease, Outcome(Status.WAITING_FOR_APPROVAL))
    await employ(store)
    found = await why(app, job, Why.APPROVAL, f"(question …{asked.short_id}")
    assert commands(found) == [
        f"perdure approvals approve {asked.short_id} --outcome happened --result JSON",
        f"perdure approvals approve {asked.short_id} --outcome retry",
        f"perdure approvals deny {asked.short_id}",
    ]


async def test_an_answer_that_came_too_late(app: App) -> None:
    store = await app.open()
    job = await echo(app)
    lease = (await claim(store, job.id)).lease
    asked = await store.approvals.request_approval(lease, new_approval(expires_in=0.05))
    await store.leases.finish(lease, Outcome(Status.WAITING_FOR_APPROVAL))
    await passed(store, asked.expires_at)
    found = await why(app, job, Why.APPROVAL, "It expired at", "the next worker settles that, and none is alive")
    assert set(commands(found)) == {START}
    await employ(store)
    found = await why(app, job, Why.APPROVAL, "a live worker settles that within seconds")
    assert found.moves == ()
    await chores(app)
    await why(app, job, Why.FAILED, "(expired): approval 'ok' expired undecided")


# -- a worker holds it -------------------------------------------------------------------------------------------------------


async def test_running(app: App) -> None:
    go_on = asyncio.Event()

    @app.job
    async def works(ctx: JobContext) -> None:
        await ctx.step("read", str, 1)
        await ctx.progress(0.5, "half way")
        await ctx.step("write", go_on.wait)

    job = await app.enqueue(works)
    async with working(app) as worker:

        async def begun() -> bool:
            found = await app.jobs.explain(job.id)
            return found.code is Why.RUNNING and bool(found.details["steps"]) and found.details["progress"] == 0.5

        await until(begun, what="node_started")
        found = await why(
            app,
            job,
            Why.RUNNING,
            f"attempt 1, on worker {worker.id} (process",
            "step 'write' for",
            "50% done, half way.",
        )
        assert (found.details["last_step"], found.details["worker"]) == ("read", worker.id)
        assert found.details["since"] < found.at < found.details["lease_expires_at"]
        assert found.moves == (), "it moves by itself"
        go_on.set()
        await ended(app, job)


async def test_running_on_a_worker_that_drains(app: App) -> None:
    store = await app.open()
    larch = await employ(store)
    job = await echo(app)
    await claim(store, job.id, worker_id=larch)
    await why(app, job, Why.RUNNING, f"It is running, attempt 1, on worker {larch}")
    await store.workers.beat_worker(larch, state=WorkerState.DRAINING)
    found = await why(app, job, Why.RUNNING, "Its worker is draining and hands it back after this step.")
    assert found.details["draining"] is True


async def test_a_cancel_that_is_not_obeyed_yet(app: App) -> None:
    store = await app.open()
    larch = await employ(store)
    job = await echo(app)
    await claim(store, job.id, worker_id=larch)
    await app.jobs.cancel(job.id, "too expensive")
    found = await why(
        app,
        job,
        Why.CANCELLING,
        f"It was asked to stop by {app.client.actor} at",
        ": too expensive. Worker w-",
        "has not stopped it yet",
    )
    assert (found.details["cancelled_by"], found.details["reason"]) == (app.client.actor, "too expensive")
    assert commands(found) == [f"perdure jobs cancel {job.id.hex[-8:]} --force"]
    await app.jobs.cancel(job.id, force=True)
    await why(app, job, Why.CANCELLED, f"It was cancelled by {app.client.actor} at")


async def test_a_worker_that_seems_dead(app: App) -> None:
    store = await app.open()
    job = await echo(app)
    lease = (await claim(store, job.id, worker_id="larch-1", ttl=50 * HOUR)).lease
    found = await why(app, job, Why.WORKER_SILENT, "Worker larch-1 holds it, but has no row: it seems lost", "(in 2d)")
    assert found.details["takeover_at"] == found.details["lease_expires_at"]
    assert commands(found) == [START, f"perdure jobs cancel {job.id.hex[-8:]} --force"]
    birch = await employ(store, "birch")
    left = await echo(app)
    await claim(store, left.id, worker_id=birch)
    await store.workers.beat_worker(birch, state=WorkerState.STOPPED)
    await employ(store, "oak")
    found = await why(
        app, left, Why.WORKER_SILENT, "holds it, but stopped at", "a live worker takes it over within seconds"
    )
    assert commands(found) == [f"perdure jobs cancel {left.id.hex[-8:]} --force"]
    await run_out(store, lease)
    found = await why(
        app, job, Why.LEASE_EXPIRED, "The lease of worker larch-1 ran out at", "a live worker takes it over"
    )
    assert found.moves == ()
    await chores(app)
    assert await job.status() is Status.RETRY


async def test_a_silent_worker(file_app: App) -> None:
    store = await file_app.open()
    larch = await employ(store)
    job = await echo(file_app)
    await claim(store, job.id, worker_id=larch)
    async with open_shell(file_app.settings["database_url"]) as shell:
        await shell.run(f"update workers set heartbeat_at = {shell.ago(DAY)}")
    await why(file_app, job, Why.WORKER_SILENT, "but sent its last heartbeat at", "(24h ago): it seems lost")


async def test_a_lost_lease_that_no_worker_takes_over(app: App) -> None:
    store = await app.open()
    job = await echo(app)
    lease = (await claim(store, job.id)).lease
    await app.jobs.cancel(job.id)
    await run_out(store, lease)
    found = await why(app, job, Why.LEASE_EXPIRED, "the next worker cancels it, as was asked for, and none is alive")
    assert commands(found) == [START]


# -- it has ended ------------------------------------------------------------------------------------------------------------


async def test_how_it_ended(app: App) -> None:
    @app.job(max_retries=0)
    async def ends(ctx: JobContext, how: str) -> str:
        if how == "at once":
            raise Fail("no such account")
        await ctx.step("read it", str, how)
        match how:
            case "fail":
                raise Fail("no such account")
            case "break":
                raise ValueError("a bug")
            case _:
                return how

    async with working(app):
        jobs = {how: await app.enqueue(ends, how) for how in ("fail", "break", "well", "at once")}
        for job in jobs.values():
            await ended(app, job)
    rerun = "perdure jobs rerun {}".format
    fork = "perdure jobs fork {}".format
    short = {how: job.id.hex[-8:] for how, job in jobs.items()}
    failed = await why(app, jobs["fail"], Why.FAILED, "It failed at", "(fatal): no such account")
    assert commands(failed) == [fork(short["fail"]), rerun(short["fail"])]
    dead = await why(
        app,
        jobs["break"],
        Why.DEADLETTER,
        "It became DEADLETTER at",
        "0 of 0 retries used (exhausted): ValueError: a bug",
    )
    assert (dead.details["error_kind"], dead.details["attempts"]) == ("exhausted", 1)
    well = await why(app, jobs["well"], Why.COMPLETED, "It completed at", "after 1 attempt.")
    assert commands(well) == [rerun(short["well"]), f"{fork(short['well'])} --from-step 'read it'"]
    empty = await why(app, jobs["at once"], Why.FAILED)
    assert commands(empty) == [rerun(short["at once"])], "there is nothing to keep"
    cancelled = await echo(app, delay="50h")
    await app.jobs.cancel(cancelled.id, "not needed")
    await why(app, cancelled, Why.CANCELLED, f"It was cancelled by {app.client.actor} at", ": not needed")


# -- damage, other ids -------------------------------------------------------------------------------------------------------


async def test_rows_that_were_deleted(damaged: App) -> None:
    store = await damaged.open()
    lost, forgotten, asleep = await echo(damaged), await echo(damaged), await echo(damaged, queue="naps")
    await store.leases.finish((await claim(store, lost.id)).lease, Outcome(Status.PARKED))
    lease = (await claim(store, asleep.id)).lease
    await store.leases.record(lease, [], effects=[open_wait(Wait("nap", "timer", await later(store, 60)))])
    await store.leases.finish(lease, Outcome(Status.PARKED))
    async with open_shell(damaged.settings["database_url"]) as shell:
        await shell.run("delete from job_queue")
    await why(damaged, forgotten, Why.DAMAGED, "It is PENDING, but it is not in the queue, so it would never start")
    await why(damaged, lost, Why.DAMAGED, "It is PARKED, but it has no wait that could end")
    found = await why(
        damaged, asleep, Why.DAMAGED, "It is PARKED, but it is not in the queue, so it would not wake when timer 'nap'"
    )
    assert commands(found) == ["perdure fsck --fix", f"perdure jobs cancel {asleep.id.hex[-8:]}"]
    assert all([finding.fixed async for finding in damaged.database.fsck(fix=True)])
    await why(damaged, forgotten, Why.NO_WORKER)


def test_what_happens_at_this_very_moment() -> None:
    """A clock that a test moves stands still between two readings."""
    assert when(datetime(2026, 11, 20, 18, tzinfo=UTC), datetime(2026, 11, 20, 18, tzinfo=UTC)).endswith("(0ms ago)")


async def test_jobs_that_are_not_there(app: App) -> None:
    with pytest.raises(JobNotFound):
        await app.jobs.explain(uuid7())


async def test_it_is_read_at_one_moment_while_everything_moves(app: App) -> None:
    """Whatever the job does meanwhile, no explanation mixes two of its states."""

    @app.job
    async def hops(ctx: JobContext) -> None:
        for n in range(10):
            await ctx.step(f"hop {n}", str, n)

    leased = {Why.RUNNING, Why.WORKER_SILENT}
    unleased = {Why.QUEUED, Why.NO_WORKER, Why.WORKERS_BUSY, Why.WORKERS_DRAINING}
    async with working(app):
        jobs = [await app.enqueue(hops) for _ in range(20)]
        left = list(jobs)
        async with asyncio.timeout(PATIENCE):
            while left:
                for job in list(left):
                    found = await app.jobs.explain(job.id)
                    match found.status:
                        case Status.RUNNING:
                            assert found.code in leased
                        case Status.PENDING:
                            assert found.code in unleased
                        case Status.COMPLETED:
                            assert found.code is Why.COMPLETED
                            left.remove(job)
                        case _:
                            raise AssertionError(found.status)


async def test_a_lease_by_hand(file_app: App) -> None:
    """A person typed `update jobs set status = 'RUNNING'`: no worker runs it."""
    job = await echo(file_app)
    async with open_shell(file_app.settings["database_url"]) as shell:
        await shell.run(f"update jobs set status = 'RUNNING' where id = {shell.id(job.id)}")
    await why(file_app, job, Why.LEASE_EXPIRED, "The lease of worker sql ran out at")
    assert (await lease_of(await file_app.open(), job)).worker_id == "sql"


async def test_a_job_of_a_paused_queue_names_the_pause(app: App) -> None:
    job = await app.enqueue("echo", elsewhere=True, concurrency_key="customer:8", max_concurrent=1)
    await app.acting(actor="ann").queues.pause("default", "the provider is down")
    found = await app.jobs.explain(job.id)
    assert found.code is Why.PAUSED
    assert ", but queue 'default' is paused by ann since 20" in found.sentence
    assert found.sentence.endswith(": the provider is down.")
    assert [move.command for move in found.moves] == ["perdure queues resume default"]
    later = await app.enqueue("echo", elsewhere=True, delay=60)
    found = await app.jobs.explain(later.id)
    assert found.code is Why.DELAYED
    assert "Even then it could not start: queue 'default' is paused by ann" in found.sentence
    await app.queues.resume("default")
    assert (await app.jobs.explain(job.id)).code is not Why.PAUSED


# -- limits -----------------------------------------------------------------------------------------------------------------


async def test_a_job_that_waits_for_a_slot_names_its_key_and_who_holds_it(app: App) -> None:
    handles = [
        await app.enqueue("echo", elsewhere=True, concurrency_key="customer:7", max_concurrent=1) for _ in range(2)
    ]
    store = await app.open()
    [job] = await store.leases.claim(worker_id="w", queue="default", kinds={"echo": 3}, limit=5, ttl=30)
    assert job.id == handles[0].id
    short = str(job.id)[-8:]
    found = await app.jobs.explain(handles[1].id)
    assert found.code is Why.LIMIT
    assert found.sentence == f"It waits for a slot of 'customer:7': 1 of 1 in use by job …{short}. It is the next."
    assert [move.command for move in found.moves] == [
        f"perdure jobs explain {short}",
        "perdure limits set customer:7 --max 2",
    ]
    await app.limits.set("customer:7", 0)
    found = await app.jobs.explain(handles[1].id)
    assert found.sentence == "It waits for a slot of 'customer:7', whose maximum is 0."
    await app.limits.set("customer:7", 2)
    found = await app.jobs.explain(handles[1].id)
    assert found.sentence.startswith("It waited for a slot of 'customer:7', and one is free: ")
    assert (await app.limits.unset("customer:7")).max == 1


# -- agents -----------------------------------------------------------------------------------------------------------------


async def test_a_job_that_waits_for_its_turn_says_which_job_of_its_agent_runs_and_how_many_are_before_it(
    app: App,
) -> None:
    await app.agents.create("ann", kind="echo")
    handles = [await echo(app, agent="ann") for _ in range(4)]
    first = await echo(app, agent="ann", priority=9)
    store = await app.open()
    [job] = await store.leases.claim(worker_id="w", queue="default", kinds={"echo": 3}, limit=1, ttl=30)
    assert job.id == first.id
    assert await store.leases.claim(worker_id="w", queue="default", kinds={"echo": 3}, limit=9, ttl=30) == []
    says = f"It waits for its turn: agent 'ann' runs one job at a time, now job …{str(job.id)[-8:]}. "
    places = ["It is the next.", "1 job is before it.", "2 jobs are before it.", "3 jobs are before it."]
    for number, (handle, place) in enumerate(zip(handles, places, strict=True)):
        found = await why(app, handle, Why.LIMIT)
        assert (found.sentence, found.details["before"]) == (says + place, number)
    paused = await app.agents.pause("ann")
    found = await why(app, handles[0], Why.LIMIT, "Its agent 'ann' is paused since", "its jobs go on")
    assert found.details["agent_paused_at"] == paused.paused_at
    assert "paused" not in (await app.jobs.explain(first.id)).sentence, "it runs"


async def parked_on_a_message(app: App) -> Handle[Any]:
    """A job of ann that a worker of version 1.0 has parked."""
    store = await app.open()
    await app.agents.create("ann", kind="echo", intake="inbox")
    await employ(store, "old", version="1.0")
    handle = await echo(app, agent="ann")
    [job] = await store.leases.claim(
        worker_id=f"w-{store.tenant_id}-old", queue="default", kinds={"echo": 3}, limit=1, ttl=30
    )
    wait = open_wait(Wait("receive", "message", None, wanted_text("news", 1)))
    await store.leases.record(job.lease, [], effects=[wait])
    await store.leases.finish(job.lease, Outcome(Status.PARKED))
    return handle


async def test_a_job_that_waits_for_a_message_to_a_paused_agent_says_so(app: App) -> None:
    job = await parked_on_a_message(app)
    await why(app, job, Why.WAITING, "a message to agent 'ann' on channel 'news' is to come")
    await app.agents.pause("ann")
    found = await why(app, job, Why.WAITING, "Its agent 'ann' is paused since", "no messages and signals until then")
    assert commands(found)[0] == "perdure agents resume ann"


async def test_a_wait_that_no_live_code_may_ask_for_is_named(app: App) -> None:
    job = await parked_on_a_message(app)
    store = await app.open()
    assert "version" not in (await why(app, job, Why.WAITING)).sentence
    await employ(store, "new", version="2.0")
    assert "version" not in (await why(app, job, Why.WAITING)).sentence, "a worker of the old code lives"
    await store.workers.beat_worker(f"w-{store.tenant_id}-old", state=WorkerState.STOPPED)
    found = await why(app, job, Why.WAITING, "Code of version 1.0 asked for that, and the live workers have 2.0")
    assert commands(found)[1:] == [f"perdure jobs {verb} {found.short_id}" for verb in ("fork", "cancel")]
