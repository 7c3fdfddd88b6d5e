"""Calls that do not stop: their attempts end without them, their threads and slots are given to others, and too many of them end
the process."""

import asyncio
import contextlib
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from perdure import App, BlockingContext, Handle, JobContext, Status
from perdure.runtime.threads import DaemonThreads
from perdure.testing import TestApp
from tests.runtime.support import NOW, PATIENCE, chores, ended, keys, until, working

GRACE = 0.3
SHORT: dict[str, Any] = {"grace": GRACE, "concurrency": 1}


class Stuck:
    """Code that goes on until the test lets it go, whatever is done to it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()
        self.left = threading.Event()

    def block(self) -> None:
        """In a thread."""
        self.reached.set()
        self.released.wait(PATIENCE)
        self.left.set()

    async def swallow(self) -> None:
        """In the event loop; a cancellation does not matter to it."""
        self.reached.set()
        while not self.released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.02)
        self.left.set()


@pytest.fixture
def stuck() -> Any:
    """Released at the end of the test."""
    it = Stuck()
    yield it
    it.released.set()


def hanging(app: App, stuck: Stuck, how: str, **policy: Any) -> Any:
    """A handler that hangs in this way, in its first attempt."""
    if how == "plain":

        @app.job(name="hangs", **policy)
        def hangs(ctx: BlockingContext) -> str:
            if ctx.attempt == 1:
                stuck.block()
            return "done"

        return hangs

    @app.job(name="hangs", **policy)
    async def swallows(ctx: JobContext) -> str:
        if ctx.attempt == 1:
            await stuck.swallow()
            await ctx.step("late", str, 1)
        return "done"

    return swallows


HOW = pytest.mark.parametrize("how", ["plain", "async"])


@HOW
async def test_a_timeout_ends_the_attempt_of_a_handler_that_does_not_stop(app: App, stuck: Stuck, how: str) -> None:
    handler = hanging(app, stuck, how, timeout=0.2, max_retries=0)

    @app.job
    async def other(ctx: JobContext) -> str:
        return "ran"

    async with working(app, **SHORT) as worker:
        began = time.monotonic()
        handle = await app.enqueue(handler)
        await until(stuck.reached.is_set)
        next_one = await app.enqueue(other)
        job = await ended(app, handle)
        assert (job.status, job.error_kind) == (Status.DEADLETTER, "timeout")
        assert time.monotonic() - began >= 0.2 + GRACE
        assert await next_one.result(PATIENCE) == "ran", "its slot is free though it still runs"
        assert not stuck.left.is_set()
        await until(lambda: worker.hung == 1)
        stuck.released.set()
        await until(lambda: worker.hung == 0)
    assert "late" not in keys(await handle.events(), "node_finished"), "nothing that it does later is recorded"
    [run] = await (await app.open()).jobs.list_runs(handle.id)
    assert run.error_kind == "timeout"


@HOW
async def test_it_is_tried_again_as_after_any_timeout(app: App, stuck: Stuck, how: str) -> None:
    handler = hanging(app, stuck, how, timeout=0.2, backoff=NOW)
    async with working(app, **SHORT):
        handle = await app.enqueue(handler)
        assert await handle.result(PATIENCE) == "done"
    assert (await handle.get()).retry_count == 1


@HOW
async def test_a_deadline_fails_the_job_of_a_handler_that_does_not_stop(app: App, stuck: Stuck, how: str) -> None:
    handler = hanging(app, stuck, how)
    store = await app.open()
    async with working(app, **SHORT):
        handle = await app.enqueue(handler, deadline=await store.now() + timedelta(seconds=0.3))
        job = await ended(app, handle)
    assert (job.status, job.error_kind) == (Status.FAILED, "timeout")


@HOW
async def test_a_cancelled_handler_that_does_not_stop_keeps_no_slot(app: App, stuck: Stuck, how: str) -> None:
    handler = hanging(app, stuck, how)

    @app.job
    async def other(ctx: JobContext) -> str:
        return "ran"

    async with working(app, **SHORT):
        handle = await app.enqueue(handler)
        await until(stuck.reached.is_set)
        await handle.cancel()
        job = await ended(app, handle)
        assert job.status is Status.CANCELLED
        assert await (await app.enqueue(other)).result(PATIENCE) == "ran"


async def test_the_lease_has_an_end_where_there_is_a_timeout(app: App, stuck: Stuck) -> None:
    """What the worker's own clock and tasks do not notice is ended by the database: see test_lease_ends.py."""
    handler = hanging(app, stuck, "async", timeout=600)
    async with working(app, lease=1) as worker:
        handle = await app.enqueue(handler)
        await until(stuck.reached.is_set)
        [leased] = worker._leases.jobs.values()
        assert leased.ends_at is not None
        given = leased.ends_at - (await app.open()).clock.monotonic()
        assert 600 < given <= 615.1
        stuck.released.set()
        assert await handle.result(PATIENCE) == "done"


async def test_too_many_hanging_calls_stop_the_worker(app: App, stuck: Stuck) -> None:
    """Its other jobs are handed back for the process that replaces it."""
    handler = hanging(app, stuck, "plain", timeout=0.1, max_retries=0)
    going_on = asyncio.Event()

    @app.job
    async def innocent(ctx: JobContext) -> str:
        if ctx.attempt == 1:
            await ctx.step("first", str, 1)
            going_on.set()
            await asyncio.sleep(PATIENCE)
        return "done"

    worker = await app.worker(lease=3, concurrency=4, grace=0.1, max_hung=2, drain_timeout=0.1)
    running = asyncio.create_task(worker.run())
    other = await app.enqueue(innocent)
    await until(going_on.is_set)
    for _ in range(2):
        await app.enqueue(handler)
    async with asyncio.timeout(PATIENCE):
        await running
    assert worker.worn_out
    job = await other.get()
    assert (job.status, job.retry_count) == (Status.RETRY, 0)
    async with working(app):
        assert await other.result(PATIENCE) == "done"


async def test_the_number_of_hanging_calls_is_shown(app: App, stuck: Stuck) -> None:
    handler = hanging(app, stuck, "async", timeout=0.1, max_retries=0)
    async with working(app, **SHORT) as worker:
        await ended(app, await app.enqueue(handler))
        await until(lambda: worker.hung == 1)
        store = await app.open()

        async def shown() -> bool:
            return [w.hung for w in await store.workers.list_workers() if w.id == worker.id] == [1]

        await until(shown, what="the figure in the worker's row")


def test_the_limit_follows_the_concurrency() -> None:
    from perdure.runtime.worker_options import WorkerOptions

    assert [WorkerOptions(concurrency=n).most_hung for n in (1, 16, 100)] == [8, 8, 50]
    assert WorkerOptions(max_hung=3).most_hung == 3


# -- steps whose plain function does not return ------------------------------------------------------------------------------


async def test_threads_of_lost_calls_do_not_count(app: App, stuck: Stuck) -> None:
    """As many calls hang as there are threads; the steps of other jobs run all the same."""

    @app.job(max_retries=0)
    async def careless(ctx: JobContext, number: int) -> str:
        with contextlib.suppress(TimeoutError):
            await ctx.options(timeout=0.1).step("blocks", stuck.block)
        return "gave up"

    @app.job
    async def other(ctx: JobContext) -> int:
        return await ctx.step("thread", threading.get_ident)

    async with working(app, concurrency=8, grace=0.1, max_hung=100) as worker:
        lost = [await app.enqueue(careless, number) for number in range(8)]
        for handle in lost:
            assert await handle.result(PATIENCE) == "gave up"
        assert await (await app.enqueue(other)).result(PATIENCE) > 0
        await until(lambda: worker.hung == 8)
        stuck.released.set()
        await until(lambda: worker.hung == 0)


async def test_a_lost_thread_that_returns_leaves_no_more_threads_than_before() -> None:
    threads, gate = DaemonThreads(2, "pool"), threading.Event()
    loop = asyncio.get_running_loop()
    lost = [loop.run_in_executor(threads, gate.wait, PATIENCE) for _ in range(2)]
    await asyncio.sleep(0.05)
    waiting = loop.run_in_executor(threads, str, 1)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert threads.starved > 0
    for call in lost:
        call.cancel()
    assert await waiting == "1"
    assert threads.starved == 0
    assert threads.lost(time.monotonic()) == 2
    more = [loop.run_in_executor(threads, time.sleep, 0.01) for _ in range(8)]
    await asyncio.gather(*more)
    assert len(threads._threads) == 4
    gate.set()
    await until(lambda: threads.lost(time.monotonic()) == 0)
    await until(lambda: len(threads._threads) == 2)
    assert await loop.run_in_executor(threads, str, 2) == "2"


# -- no call begins without a lease -------------------------------------------------------------------------------------------


async def test_no_step_begins_after_the_lease_by_the_local_clock(timed_app: TestApp) -> None:
    """The event loop is blocked past the lease between two steps, so that nothing has noticed it yet."""
    effects: list[str] = []
    began = asyncio.Event()
    app, blocked = timed_app, False

    @app.job(backoff=NOW)
    async def job(ctx: JobContext) -> str:
        nonlocal blocked
        await ctx.step("one", lambda: effects.append(f"one {ctx.attempt}"))
        if not blocked:
            blocked = True
            began.set()
            app.clock.advance(31)
        await ctx.step("two", lambda: effects.append(f"two {ctx.attempt}"))
        await ctx.tool("three", lambda: effects.append(f"three {ctx.attempt}"))
        return "done"

    async with working(app, lease=30):
        handle = await app.enqueue(job)
        await until(began.is_set)
        await until(lambda: chores_until_done(app, handle))
    assert effects == ["one 1", "two 2", "three 2"]


async def test_no_tool_begins_after_the_lease_by_the_local_clock(timed_app: TestApp) -> None:
    """Nor is a person asked whether it happened."""
    effects: list[str] = []
    app, blocked = timed_app, False

    def charge() -> str:
        effects.append("charged")
        return "charged"

    @app.job(backoff=NOW)
    async def job(ctx: JobContext) -> str:
        nonlocal blocked
        if not blocked:
            blocked = True
            app.clock.advance(31)
        return await ctx.tool("charge", charge)

    async with working(app, lease=30):
        handle = await app.enqueue(job)
        await until(lambda: blocked)
        await until(lambda: chores_until_done(app, handle))
    assert await handle.result() == "charged"
    assert effects == ["charged"]


async def test_a_function_that_waited_for_a_thread_does_not_begin_after_the_lease(timed_app: TestApp) -> None:
    effects: list[str] = []
    app, gate, busy = timed_app, threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        gate.wait(PATIENCE)

    @app.job(backoff=NOW)
    async def job(ctx: JobContext) -> str:
        if ctx.attempt > 1:
            return "done"
        calls = [ctx.options(key=str(n)).step("hold", hold) for n in range(8)]
        await asyncio.gather(*calls, ctx.step("waits", effects.append, "too late"))
        return "never"

    async with working(app, lease=30, concurrency=8):
        handle = await app.enqueue(job)
        await until(busy.is_set)
        await asyncio.sleep(0.05)
        app.clock.advance(31)
        gate.set()
        await until(lambda: chores_until_done(app, handle))
    assert effects == []


async def chores_until_done(app: App, handle: Handle[Any]) -> bool:
    """The jobs of lost leases are taken over."""
    await chores(app)
    return (await handle.get()).status.terminal
