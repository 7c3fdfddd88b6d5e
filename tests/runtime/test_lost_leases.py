"""A worker that lost its lease: the handler is stopped at once, and nothing it still does is written."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from perdure import App, Handle, JobContext, Status, Suspended
from perdure.model.errors import LeaseLost
from perdure.model.events import NewEvent
from perdure.model.jobs import Outcome
from perdure.testing import TestApp
from tests.conformance.sql_shell import open_shell
from tests.runtime.support import (
    NOW,
    PATIENCE,
    chores,
    keys,
    lease_of,
    only,
    reached,
    take_away,
    types,
    until,
    working,
)


class Stage:
    """A handler's first attempt, held up in the middle and watched from outside."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.raised: list[str] = []

    async def hold(self) -> None:
        self.entered.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def try_everything(self, ctx: JobContext) -> None:
        calls: list[Any] = [
            lambda: ctx.step("late step", str, 1),
            lambda: ctx.tool("late tool", str, 1),
            lambda: ctx.sleep("late sleep", 0),
            lambda: ctx.approve("late approval", title="?"),
            lambda: ctx.checkpoint({"late": True}),
            lambda: ctx.progress(0.9, "late"),
            lambda: ctx.emit("late"),
            lambda: ctx.usage(tokens=1),
        ]
        for call in calls:
            try:
                await call()
            except BaseException as error:  # noqa: BLE001  as a careless handler would
                self.raised.append(type(error).__name__)


@pytest.fixture
def stage() -> Stage:
    """A fresh one for every test."""
    return Stage()


@pytest.fixture
def handler(app: App, stage: Stage) -> Any:
    """Held up in its first attempt, quick in the second."""

    @app.job(backoff=NOW)
    async def handler(ctx: JobContext) -> str:
        await ctx.step("before", str, 0)
        if ctx.attempt > 1:
            return "by the second"
        try:
            await stage.hold()
        finally:
            await stage.try_everything(ctx)
        return "by the first"

    return handler


async def started(app: App, handler: Any, stage: Stage) -> Handle[Any]:
    handle = await app.enqueue(handler)
    await until(stage.entered.is_set)
    return handle


def assert_nothing_late(log: list[Any]) -> None:
    assert not [e for e in log if "late" in f"{e.type} {e.payload}" and e.type != "job_retrying"]


async def test_a_forced_cancel_stops_the_handler(app: App, handler: Any, stage: Stage) -> None:
    async with working(app) as worker:
        handle = await started(app, handler, stage)
        assert await handle.cancel("now", force=True) is Status.CANCELLED
        await until(stage.cancelled.is_set)
        await until(lambda: worker.busy == 0)
    assert stage.raised == ["Suspended"] * 8
    log = await handle.events()
    assert_nothing_late(log)
    assert types(log)[-1] == "job_cancelled"
    job = await handle.get()
    assert (job.state.tokens, job.state.progress, job.state.checkpoint) == (0, None, None)


async def test_a_takeover_stops_the_handler_and_the_second_attempt_wins(app: App, handler: Any, stage: Stage) -> None:
    store = await app.open()
    async with working(app):
        handle = await started(app, handler, stage)
        lost = await take_away(store, handle)
        await until(stage.cancelled.is_set)
        assert await handle.result(PATIENCE) == "by the second"
    assert stage.raised == ["Suspended"] * 8
    log = await handle.events()
    assert_nothing_late(log)
    assert keys(log, "node_finished") == ["before"]
    assert (await handle.get()).retry_count == 1
    with pytest.raises(LeaseLost):
        await store.leases.record(lost, [NewEvent("late")])
    with pytest.raises(LeaseLost):
        await store.leases.finish(lost, Outcome(Status.COMPLETED, result='"late"'))
    assert_nothing_late(await handle.events())


async def test_a_handler_learns_it_by_its_next_call_even_before_the_heartbeat(app: App, stage: Stage) -> None:
    """The lease is taken over between two heartbeats, which are minutes apart here."""
    seen: list[BaseException] = []

    @app.job(backoff=NOW)
    async def handler(ctx: JobContext) -> str:
        if ctx.attempt > 1:
            return "by the second"
        await stage.hold()
        try:
            await ctx.step("late step", str, 1)
        except BaseException as error:
            seen.append(error)
            raise
        return "by the first"

    async with working(app, lease=300, concurrency=1):
        handle = await started(app, handler, stage)
        await take_away(await app.open(), handle)
        stage.release.set()
        assert await handle.result(PATIENCE) == "by the second"
    assert [type(e) for e in seen] == [Suspended]
    assert_nothing_late(await handle.events())


async def test_a_result_after_the_takeover_counts_for_nothing(app: App, stage: Stage) -> None:
    @app.job(backoff=NOW)
    async def handler(ctx: JobContext) -> str:
        if ctx.attempt == 1:
            await stage.hold()
            return "by the first"
        return "by the second"

    async with working(app, lease=300, concurrency=1):
        handle = await started(app, handler, stage)
        await take_away(await app.open(), handle)
        stage.release.set()
        assert await handle.result(PATIENCE) == "by the second"
    assert types(await handle.events()).count("job_completed") == 1


async def test_an_error_after_the_takeover_uses_no_further_retry(app: App, stage: Stage) -> None:
    @app.job(backoff=NOW)
    async def handler(ctx: JobContext) -> int:
        if ctx.attempt == 1:
            await stage.hold()
            raise ValueError("by the first")
        return ctx.retry_count

    async with working(app, lease=300, concurrency=1):
        handle = await started(app, handler, stage)
        await take_away(await app.open(), handle)
        stage.release.set()
        assert await handle.result(PATIENCE) == 1


async def test_a_status_changed_by_hand_stops_the_handler(file_app: App, file_store_url: str, stage: Stage) -> None:
    @file_app.job
    async def handler(ctx: JobContext) -> None:
        await stage.hold()

    async with working(file_app) as worker:
        handle = await started(file_app, handler, stage)
        async with open_shell(file_store_url) as shell:
            await shell.run(f"update jobs set status = 'CANCELLED' where id = {shell.id(handle.id)}")
        await until(stage.cancelled.is_set)
        await until(lambda: worker.busy == 0)
    assert (await handle.get()).status is Status.CANCELLED


async def test_a_database_that_does_not_answer_costs_the_lease(
    timed_app: TestApp, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat that hangs is no heartbeat: by its own clock the worker stops the handler before others take over."""
    answering = asyncio.Event()
    answering.set()
    app = timed_app
    store = await app.open()

    def hanging(role: object, name: str) -> None:
        real = getattr(role, name)

        async def call(*args: Any, **options: Any) -> Any:
            await answering.wait()
            return await real(*args, **options)

        monkeypatch.setattr(role, name, call)

    for name in ("heartbeat", "cancel_requests", "claim", "reap", "expire"):
        hanging(store.leases, name)
    hanging(store.workers, "beat_worker")

    @app.job(backoff=NOW)
    async def handler(ctx: JobContext) -> int:
        if ctx.attempt == 1:
            await stage.hold()
        return ctx.attempt

    async with working(app, lease=30):
        handle = await started(app, handler, stage)
        answering.clear()
        app.clock.advance(29)
        await asyncio.sleep(0.05)
        assert not stage.cancelled.is_set()
        app.clock.advance(1)
        try:
            await until(stage.cancelled.is_set)
        finally:
            answering.set()

        async def over() -> bool:
            await chores(app)
            return (await handle.get()).status.terminal

        await until(over)
    assert await handle.result() == 2


async def test_a_lease_is_renewed_as_long_as_it_takes(timed_app: TestApp, stage: Stage) -> None:
    """Real clocks are in tests/crash/test_clocks.py."""

    @timed_app.job(max_retries=0)
    async def long(ctx: JobContext) -> str:
        await stage.hold()
        return "done"

    async with working(timed_app, lease=30):
        handle = await started(timed_app, long, stage)
        for _ in range(20):
            timed_app.clock.advance(10)  # a third of the lease
            renewed = timed_app.clock.now() + timedelta(seconds=30)

            async def beaten(at: datetime = renewed) -> bool:
                lease = (await handle.get()).lease
                return lease is not None and lease.expires_at == at

            await until(beaten, what="the heartbeat")
        stage.release.set()
        await reached(handle, Status.COMPLETED)
    assert (await handle.get()).attempt == 1


async def test_a_job_whose_workers_keep_dying_ends_in_the_dead_letters(app: App) -> None:
    @app.job(max_retries=2)
    async def deadly(ctx: JobContext) -> None: ...

    store = await app.open()
    handle = await app.enqueue(deadly)
    for n in range(3):
        [claimed] = await store.leases.claim(
            worker_id=f"doomed-{n}", queue="default", kinds=app.registry.kinds, limit=1, ttl=30
        )
        assert claimed.retry_count == n
        await take_away(store, handle)
    job = await handle.get()
    assert (job.status, job.error_kind, job.retry_count) == (Status.DEADLETTER, "lease_lost", 2)
    assert types(await handle.events()).count("run_started") == 3


async def test_a_lost_claim_that_never_started_costs_nothing(app: App) -> None:
    @app.job(max_retries=0)
    async def quick(ctx: JobContext) -> str:
        return "done"

    store = await app.open()
    handle = await app.enqueue(quick)
    for n in range(5):
        [claimed] = await store.leases.claim(
            worker_id=f"doomed-{n}", queue="default", kinds=app.registry.kinds, limit=1, ttl=0.01
        )

        async def reaped() -> bool:
            return handle.id in {r.job_id for r in await store.leases.reap(worker_id="reaper")}

        await until(reaped)
        assert claimed.lost_starts == n
    async with working(app):
        assert await handle.result(PATIENCE) == "done"
    assert (await handle.get()).retry_count == 0


async def test_a_kind_that_crashed_before_is_marked_started_before_its_code_runs(app: App) -> None:
    marked: list[bool] = []

    @app.job(max_retries=0)
    async def quick(ctx: JobContext) -> None:
        job = await app.jobs.get(ctx.job_id)
        assert job.lease is not None
        marked.append(job.lease.started)

    async with working(app):
        handle = await app.enqueue(quick)
        await handle.result(PATIENCE)
    assert marked == [True], "max_retries=0: a crash must not run it twice"


async def test_the_log_tells_who_lost_a_job(app: App) -> None:
    @app.job(backoff=NOW)
    async def handler(ctx: JobContext) -> str:
        if ctx.attempt == 1:
            await asyncio.sleep(PATIENCE * 2)
        return "done"

    async with working(app) as worker:
        handle = await app.enqueue(handler)
        await reached(handle, Status.RUNNING)
        await take_away(await app.open(), handle)
        await handle.result(PATIENCE)
        report = only(await handle.events(), "job_retrying").payload
        assert report["reason"] == "lease_expired"
        assert report["lost_worker"] == worker.id
        lease = (await app.jobs.runs(handle.id))[0]
        assert (lease.worker_id, lease.outcome) == (worker.id, Status.RETRY)


async def test_leases_differ_by_attempt_and_worker(app: App) -> None:
    """The same worker may get the job again: its former lease stays dead."""

    @app.job(backoff=NOW)
    async def handler(ctx: JobContext) -> str:
        if ctx.attempt == 1:
            await asyncio.sleep(PATIENCE * 2)
        await ctx.step("only", str, ctx.attempt)
        return "done"

    store = await app.open()
    async with working(app):
        handle = await app.enqueue(handler)
        await reached(handle, Status.RUNNING)
        first = await lease_of(store, handle)
        await take_away(store, handle)
        await handle.result(PATIENCE)
        with pytest.raises(LeaseLost):
            await store.leases.record(first, [NewEvent("late")])
    assert keys(await handle.events(), "node_finished") == ["only"]
