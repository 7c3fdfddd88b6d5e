"""Sleeping: short waits are sat out under the lease, long ones cost no worker."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from perdure import App, JobContext, Retry, Snooze, Status
from perdure.model.errors import InvalidInput
from perdure.testing import TestApp
from tests.runtime.support import (
    LINGER,
    LONG,
    NOW,
    PATIENCE,
    QUICK,
    ended,
    keys,
    only,
    pending,
    reached,
    take_away,
    types,
    until,
    working,
)

SHORT = LINGER * 0.8
A_WHILE = LINGER * 4


async def test_a_short_sleep_is_sat_out_under_the_lease(app: App) -> None:
    @app.job
    async def nap(ctx: JobContext) -> int:
        before = time.monotonic()
        await ctx.sleep("nap", 1.2)
        assert time.monotonic() - before >= 1.15
        return ctx.attempt

    async with working(app, linger=5):
        handle = await app.enqueue(nap)
        assert await handle.result(PATIENCE) == 1
    log = await handle.events()
    assert types(log)[2:] == ["wait_started", "job_waiting", "job_resumed", "wait_completed", "job_completed"]
    assert (await handle.get()).retry_count == 0


async def test_a_long_sleep_parks_the_job_and_costs_no_retry(app: App) -> None:
    runs: list[int] = []

    @app.job(max_retries=0)
    async def nap(ctx: JobContext) -> int:
        runs.append(ctx.attempt)
        await ctx.sleep("nap", A_WHILE)
        return ctx.attempt

    async with working(app) as worker:
        handle = await app.enqueue(nap)
        parked = await reached(handle, Status.PARKED)
        assert parked.lease is None
        assert [w.key for w in parked.waits] == ["nap"]
        assert worker.busy == 0
        assert await handle.result(PATIENCE) == 2
    job = await handle.get()
    assert (job.attempt, job.retry_count) == (2, 0)
    assert runs == [1, 2]
    log = await handle.events()
    assert types(log)[2:] == ["wait_started", "job_parked", "run_started", "wait_completed", "job_completed"]
    started, done = only(log, "wait_started"), only(log, "wait_completed")
    due = datetime.fromisoformat(started.payload["until"])
    assert parked.due_at == due
    assert done.at >= due


async def test_a_parked_job_costs_no_slot(app: App) -> None:
    @app.job
    async def nap(ctx: JobContext) -> None:
        await ctx.sleep("nap", LONG)

    @app.job
    async def quick(ctx: JobContext) -> str:
        return "done"

    async with working(app, concurrency=1):
        sleepers = [await app.enqueue(nap) for _ in range(5)]
        for sleeper in sleepers:
            await reached(sleeper, Status.PARKED)
        assert await (await app.enqueue(quick)).result(PATIENCE) == "done"
        for sleeper in sleepers:
            assert await sleeper.cancel() is Status.CANCELLED


async def test_a_restart_does_not_begin_a_sleep_again(app: App) -> None:
    @app.job(backoff=NOW)
    async def nap(ctx: JobContext) -> int:
        if ctx.attempt == 2:
            raise OSError("a crash right after waking")
        await ctx.sleep("nap", A_WHILE)
        return ctx.attempt

    async with working(app):
        handle = await app.enqueue(nap)
        await reached(handle, Status.PARKED)
    async with working(app):
        assert await handle.result(PATIENCE) == 3
    log = await handle.events()
    assert keys(log, "wait_started") == ["nap"]
    assert keys(log, "wait_completed") == ["nap"]


async def test_a_sleep_that_is_over_is_not_slept_again(app: App) -> None:
    @app.job(backoff=NOW)
    async def nap(ctx: JobContext) -> int:
        for _ in range(3):
            await ctx.sleep("nap", SHORT / 2)
        if ctx.attempt == 1:
            raise OSError("replay, please")
        return ctx.attempt

    async with working(app):
        handle = await app.enqueue(nap)
        assert await handle.result(PATIENCE) == 2
    assert keys(await handle.events(), "wait_started") == ["nap", "nap#2", "nap#3"]


async def test_a_sleep_of_no_time_passes(app: App) -> None:
    @app.job
    async def nap(ctx: JobContext) -> int:
        await ctx.sleep("none", 0)
        await ctx.sleep_until("past", datetime(2020, 1, 1, tzinfo=UTC))
        return ctx.attempt

    async with working(app):
        assert await (await app.enqueue(nap)).result(PATIENCE) == 1


async def test_sleep_until_a_moment_of_any_zone(app: App) -> None:
    @app.job
    async def nap(ctx: JobContext, moment: datetime) -> int:
        await ctx.sleep_until("moment", moment)
        return ctx.attempt

    there = datetime.now(UTC).astimezone() + timedelta(seconds=A_WHILE)
    async with working(app):
        handle = await app.enqueue(nap, there)
        await handle.result(PATIENCE)
        assert only(await handle.events(), "wait_completed").at >= there - timedelta(milliseconds=5)


async def test_bad_durations_are_refused(app: App) -> None:
    @app.job
    async def nap(ctx: JobContext) -> list[str]:
        refused = []
        for bad in (-1, "soon", float("inf"), float("nan"), True):
            try:
                await ctx.sleep("nap", bad)
            except InvalidInput as error:
                refused.append(error.code)
        try:
            await ctx.sleep_until("nap", datetime(2030, 1, 1))  # noqa: DTZ001  refused for that
        except InvalidInput as error:
            refused.append(error.code)
        return refused

    async with working(app):
        assert await (await app.enqueue(nap)).result(PATIENCE) == ["invalid-input"] * 6


# -- several waits at once --------------------------------------------------------------------------------------------------


async def test_the_earliest_of_several_sleeps_wakes_the_job(timed_app: TestApp) -> None:
    woken: list[str] = []

    @timed_app.job
    async def naps(ctx: JobContext) -> int:
        async def nap(name: str, seconds: float) -> None:
            await ctx.sleep(name, seconds)
            woken.append(f"{name} in attempt {ctx.attempt}")

        await asyncio.gather(nap("long", 300), nap("short", 100))
        return ctx.attempt

    began = timed_app.clock.now()
    handle = await timed_app.enqueue(naps)
    await timed_app.run_until_idle()
    parked = await handle.get()
    assert parked.status is Status.PARKED
    assert {w.key: w.until for w in parked.waits} == {
        "long": began + timedelta(seconds=300),
        "short": began + timedelta(seconds=100),
    }
    assert parked.due_at == began + timedelta(seconds=100)
    assert await handle.result() == 3
    assert woken == ["short in attempt 2", "short in attempt 3", "long in attempt 3"]
    assert timed_app.clock.now() == began + timedelta(seconds=300)


async def test_a_job_is_not_parked_while_a_step_runs_during_its_sleep(app: App) -> None:
    release = asyncio.Event()
    runs: list[int] = []

    async def work() -> str:
        runs.append(1)
        await release.wait()
        return "worked"

    @app.job
    async def both(ctx: JobContext) -> None:
        await asyncio.gather(ctx.sleep("nap", LONG), ctx.step("work", work))

    async with working(app):
        handle = await app.enqueue(both)
        await until(lambda: runs)
        await asyncio.sleep(LINGER * 2)
        assert (await handle.get()).status is Status.RUNNING
        release.set()
        await reached(handle, Status.PARKED)
        assert keys(await handle.events(), "node_finished") == ["work"]
        await handle.cancel()
    assert len(runs) == 1


async def test_a_job_is_not_parked_while_something_is_written(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow disk a write takes longer than the moment after which a job counts as idle."""

    @app.job
    async def both(ctx: JobContext) -> None:
        async def write() -> None:
            for n in range(3):
                await ctx.emit("note", {"n": n})

        await asyncio.gather(ctx.sleep("nap", LONG), write())

    store = await app.open()
    record = store.leases.record

    async def slow(*args: object, **options: object) -> object:
        await asyncio.sleep(0.1)
        return await record(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store.leases, "record", slow)
    async with working(app):
        handle = await app.enqueue(both)
        await reached(handle, Status.PARKED)
        assert [e.payload["n"] for e in await handle.events() if e.type == "note"] == [0, 1, 2]
        await handle.cancel()


async def test_a_sleep_may_be_given_up(app: App) -> None:
    @app.job
    async def waits_shortly(ctx: JobContext) -> int:
        try:
            async with asyncio.timeout(SHORT / 2):
                await ctx.sleep("nap", SHORT)
        except TimeoutError:
            return await ctx.step("instead", int, 7)
        return 0

    @app.job
    async def at_once(ctx: JobContext) -> int:
        try:
            async with asyncio.timeout(SHORT / 2):
                await ctx.sleep("nap", SHORT)
        except TimeoutError:
            return 8
        return 0

    async with working(app):
        assert await (await app.enqueue(waits_shortly)).result(PATIENCE) == 7
        assert await (await app.enqueue(at_once)).result(PATIENCE) == 8


async def test_a_branch_left_behind_does_not_disturb_the_end(app: App) -> None:
    left: list[asyncio.Task[None]] = []

    @app.job
    async def careless(ctx: JobContext, seconds: float) -> str:
        left.append(asyncio.create_task(ctx.sleep("nap", seconds)))
        await asyncio.sleep(SHORT / 2)
        return "done"

    async with working(app, linger=SHORT):
        for seconds in (SHORT * 0.9, SHORT * 0.9, SHORT * 0.9):
            assert await (await app.enqueue(careless, seconds)).result(PATIENCE) == "done"
        await asyncio.gather(*left, return_exceptions=True)


async def test_a_branch_that_fails_leaves_the_wait_of_the_other_as_it_is(app: App) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("not yet")
        return "worked"

    @app.job(backoff=NOW)
    async def both(ctx: JobContext) -> int:
        await asyncio.gather(ctx.sleep("nap", A_WHILE), ctx.step("flaky", flaky))
        return ctx.attempt

    async with working(app):
        handle = await app.enqueue(both)
        assert await handle.result(PATIENCE) >= 2
    log = await handle.events()
    assert keys(log, "wait_started") == ["nap"]
    assert keys(log, "wait_completed") == ["nap"]
    assert (await handle.get()).retry_count == 1


async def test_the_first_of_several_waits_may_decide(app: App) -> None:
    @app.job
    async def first(ctx: JobContext) -> str | None:
        approval = asyncio.create_task(ctx.approve("ok", title="?"))
        nap = asyncio.create_task(ctx.sleep("nap", A_WHILE))
        done, others = await asyncio.wait({approval, nap}, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        return approval.result().by if approval in done else "nobody"

    async with working(app):
        slow = await app.enqueue(first)
        assert await slow.result(PATIENCE) == "nobody"
        quick = await app.enqueue(first)
        await app.approve((await pending(app, quick)).id, by="ann")
        assert await quick.result(PATIENCE) in ("ann", "nobody")
        assert (await quick.get()).waits == ()


# -- what can happen meanwhile ----------------------------------------------------------------------------------------------


async def test_a_worker_lost_during_a_short_wait_loses_nothing(app: App) -> None:
    @app.job(backoff=NOW)
    async def nap(ctx: JobContext) -> int:
        await ctx.step("before", int, 1)
        await ctx.sleep("nap", 1.0)
        return ctx.attempt

    store = await app.open()
    async with working(app, linger=2):
        handle = await app.enqueue(nap)
        await reached(handle, Status.WAITING)
        await take_away(store, handle)
        assert await handle.result(PATIENCE) == 2
    log = await handle.events()
    assert keys(log, "node_finished") == ["before"]
    assert keys(log, "wait_started") == ["nap"]
    assert (await handle.get()).retry_count == 1


async def test_a_sleep_past_the_deadline_fails(timed_app: TestApp) -> None:
    @timed_app.job
    async def nap(ctx: JobContext) -> None:
        await ctx.sleep("nap", LONG)

    deadline = timed_app.clock.now() + timedelta(minutes=1)
    handle = await timed_app.enqueue(nap, deadline=deadline)
    await timed_app.run_until_idle()
    parked = await handle.get()
    assert (parked.status, parked.due_at) == (Status.PARKED, deadline)
    await timed_app.run_until_idle(advance=True)
    job = await handle.get()
    assert (job.status, job.error_kind, job.retry_count) == (Status.FAILED, "timeout", 0)
    assert job.finished_at == deadline


async def test_many_sleepers_all_wake(app: App) -> None:
    @app.job(max_retries=0)
    async def nap(ctx: JobContext, n: int) -> int:
        await ctx.sleep("nap", A_WHILE if n % 2 else SHORT)
        return n

    async with working(app, concurrency=3):
        handles = [await app.enqueue(nap, n) for n in range(30)]
        assert [await h.result(PATIENCE) for h in handles] == list(range(30))


async def test_a_sleep_is_not_shorter_by_the_time_its_job_waited_for_a_slot(app: App) -> None:
    release = asyncio.Event()
    asked: list[datetime] = []

    @app.job
    async def first(ctx: JobContext) -> None:
        await release.wait()

    @app.job
    async def nap(ctx: JobContext) -> None:
        asked.append(await (await app.open()).now())
        await ctx.sleep("nap", LONG)

    store = await app.open()
    worker = await app.worker(**{**QUICK, "concurrency": 1})
    [blocker, sleeper] = [await app.enqueue(first), await app.enqueue(nap)]
    # claimed at once, as a worker does that has seen only quick attempts
    worker._prefetch.observe("nap", 1e-4)
    task = asyncio.create_task(worker.run())
    await until(lambda: worker.busy)
    await asyncio.sleep(0.3)
    release.set()
    await reached(sleeper, Status.PARKED)
    [wait] = (await store.jobs.get_job(sleeper.id)).waits
    assert wait.until is not None
    assert (wait.until - asked[0]).total_seconds() >= 3600 - 0.05
    await blocker.result(PATIENCE)
    worker.stop()
    await task


async def test_a_name_that_was_a_wait_of_another_kind_is_refused(app: App) -> None:
    @app.job(on_change="fail")
    async def slept(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            await ctx.sleep("x", 0)
            raise Snooze(0)
        await ctx.approve("x", title="Go?")

    @app.job(on_change="fail")
    async def asked(ctx: JobContext) -> None:
        if ctx.retry_count == 0:
            await ctx.approve("x", title="Go?")
            raise Retry("changed code", after=0)
        await ctx.sleep("x", LONG)

    async with working(app):
        first, second = await app.enqueue(slept), await app.enqueue(asked)
        await app.approve((await pending(app, second)).id)
        for handle, was in ((first, "recorded as a sleep"), (second, "recorded as an approval")):
            job = await ended(app, handle)
            assert job.status is Status.FAILED
            assert was in (job.error_message or "")
