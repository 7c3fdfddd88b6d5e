"""Cancelling a job, wherever it is."""

import asyncio
import random
import time
from typing import Any

import pytest

from perdure import App, Backoff, JobCancelled, JobContext, Status
from perdure.model.errors import IllegalTransition, JobNotFound
from perdure.runtime import lease
from tests.runtime.support import (
    LINGER,
    LONG,
    PATIENCE,
    chores,
    ended,
    only,
    reached,
    take_away,
    types,
    until,
    working,
)


@pytest.fixture
def handlers(app: App) -> dict[str, Any]:
    """Handlers that stay in one state each."""

    @app.job(max_retries=3)
    async def run(ctx: JobContext) -> None:
        await asyncio.sleep(PATIENCE * 2)

    @app.job
    async def step(ctx: JobContext) -> None:
        await ctx.step("hang", asyncio.sleep, PATIENCE * 2)

    @app.job
    async def park(ctx: JobContext) -> None:
        await ctx.sleep("nap", LONG)

    @app.job
    async def wait(ctx: JobContext) -> None:
        await ctx.sleep("nap", LINGER * 0.9 + 10)

    @app.job
    async def ask(ctx: JobContext) -> None:
        await ctx.approve("ok", title="?")

    @app.job
    async def fail(ctx: JobContext) -> None:
        raise OSError("try later")

    return {h.name: h for h in (run, step, park, wait, ask, fail)}


async def test_a_pending_job_is_cancelled_at_once(app: App, handlers: dict[str, Any]) -> None:
    handle = await app.enqueue(handlers["run"])
    assert await handle.cancel("no need") is Status.CANCELLED
    assert await handle.cancel("twice is fine") is Status.CANCELLED
    with pytest.raises(JobCancelled, match="no need"):
        await handle.result(PATIENCE)
    report = only(await handle.events(), "job_cancelled").payload
    assert (report["reason"], report["via"], report["actor"]) == ("no need", "python", app.client.actor)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("run", Status.RUNNING),
        ("step", Status.RUNNING),
        ("wait", Status.WAITING),
        ("park", Status.PARKED),
        ("ask", Status.WAITING_FOR_APPROVAL),
        ("fail", Status.RETRY),
    ],
)
async def test_a_job_is_cancelled_in_any_state(
    app: App, handlers: dict[str, Any], kind: str, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "CANCEL_POLL", 1.0)  # as in production: under a second, thanks to the hint
    async with working(app, linger=11) as worker:
        handle = await app.enqueue(handlers[kind])
        await reached(handle, status)
        if kind == "step":
            await until(lambda: worker.busy)
        before = time.monotonic()
        await handle.cancel("enough")
        job = await ended(app, handle)
        took = time.monotonic() - before
        await until(lambda: worker.busy == 0)
    assert job.status is Status.CANCELLED
    assert job.note["reason"] == "enough"
    assert took < 5, "a second where the machine is not busy"
    log = await handle.events()
    assert types(log)[-1] == "job_cancelled"
    assert types(log).count("cancel_requested") == (1 if status.leased else 0)


async def test_cancelling_a_finished_job_is_refused(app: App) -> None:
    @app.job
    async def quick(ctx: JobContext) -> None: ...

    async with working(app):
        handle = await app.enqueue(quick)
        await handle.result(PATIENCE)
        with pytest.raises(IllegalTransition, match="already COMPLETED"):
            await handle.cancel()
        with pytest.raises(JobNotFound):
            await app.jobs.cancel("0" * 32)


async def test_a_cancelled_handler_may_clean_up_but_not_record(app: App) -> None:
    cleaned: list[str] = []

    @app.job
    async def tidy(ctx: JobContext) -> None:
        try:
            await asyncio.sleep(PATIENCE * 2)
        finally:
            await asyncio.sleep(0.01)
            try:
                await ctx.emit("cleaned")
            except BaseException as error:
                cleaned.append(type(error).__name__)
                raise

    async with working(app):
        handle = await app.enqueue(tidy)
        await reached(handle, Status.RUNNING)
        await handle.cancel()
        job = await ended(app, handle)
    assert job.status is Status.CANCELLED
    assert cleaned == ["Suspended"]
    assert "cleaned" not in types(await handle.events())


@pytest.mark.parametrize("force", [False, True])
async def test_a_handler_that_will_not_go(app: App, monkeypatch: pytest.MonkeyPatch, force: bool) -> None:
    """It is cancelled in the database whatever it does; what it returns in the end counts for nothing."""
    going = asyncio.Event()

    @app.job
    async def stubborn(ctx: JobContext) -> str:
        while not going.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
        return "as if nothing had happened"

    async with working(app) as worker:
        handle = await app.enqueue(stubborn)
        await reached(handle, Status.RUNNING)
        await until(lambda: worker.busy)
        if force:
            assert await handle.cancel(force=True) is Status.CANCELLED
        else:
            assert await handle.cancel() is Status.RUNNING
            await asyncio.sleep(0.3)
            assert (await handle.get()).status is Status.RUNNING, "it is given some time"
        going.set()
        job = await ended(app, handle)
        await until(lambda: worker.busy == 0)
    assert job.status is Status.CANCELLED
    assert job.result is None


async def test_a_prefetched_job_is_cancelled_before_it_starts(app: App) -> None:
    started: list[int] = []
    go = asyncio.Event()

    @app.job
    async def quick(ctx: JobContext, n: int) -> None:
        started.append(n)
        if n < 0:
            await go.wait()

    async with working(app, concurrency=1) as worker:
        for n in range(30):  # the worker learns that these are quick, and claims ahead
            await app.enqueue(quick, n)
        await until(lambda: len(started) == 30)
        await app.enqueue_many([])
        await app.enqueue(quick, -1, priority=9)
        await until(lambda: -1 in started)
        ahead = await app.enqueue(quick, 1000)
        await reached(ahead, Status.RUNNING)
        assert worker.busy == 1
        await ahead.cancel("not this one")
        job = await ended(app, ahead)
        go.set()
    assert job.status is Status.CANCELLED
    assert 1000 not in started
    assert await app.jobs.runs(ahead.id) == [], "it never ran"


async def test_cancel_and_completion_race(app: App) -> None:
    """The first commit wins; there is no third outcome."""

    @app.job
    async def brief(ctx: JobContext, seconds: float) -> str:
        await asyncio.sleep(seconds)
        await ctx.step("work", str, "x")
        return "done"

    rng = random.Random(11)

    async def race(patience: float) -> Status:
        handle = await app.enqueue(brief, rng.uniform(0, 0.02))
        await asyncio.sleep(rng.uniform(0, patience))
        try:
            await handle.cancel()
        except IllegalTransition:
            job = await handle.get()
            assert job.status is Status.COMPLETED
        job = await ended(app, handle)
        assert job.status in (Status.COMPLETED, Status.CANCELLED)
        assert (job.result == "done") == (job.status is Status.COMPLETED)
        return job.status

    outcomes: set[Status] = set()
    async with working(app):
        for doublings in range(10):  # a busy machine needs longer to complete any
            outcomes.update(await asyncio.gather(*(race(0.04 * 2**doublings) for _ in range(60))))
            if len(outcomes) == 2:
                break
    assert outcomes == {Status.COMPLETED, Status.CANCELLED}


@pytest.mark.parametrize("how", ["retry", "park"])
async def test_cancel_and_an_end_that_is_none_race(app: App, how: str) -> None:
    """A request that comes while an attempt fails or parks is not forgotten: the job does not run on."""

    @app.job(backoff=Backoff(base=0.01, cap=0.01), max_retries=100)
    async def restless(ctx: JobContext) -> None:
        await asyncio.sleep(0.005)
        if how == "retry":
            raise OSError("again and again")
        await ctx.sleep("nap", LINGER + 0.01)
        await ctx.sleep("nap", LONG)

    rng = random.Random(13)

    async def race() -> None:
        handle = await app.enqueue(restless)
        await asyncio.sleep(rng.uniform(0, 0.1))
        await handle.cancel()
        assert (await ended(app, handle)).status is Status.CANCELLED

    async with working(app):
        await asyncio.gather(*(race() for _ in range(30)))


async def test_a_cancel_request_outlives_its_worker(app: App, handlers: dict[str, Any]) -> None:
    """The holder is killed before it sees the request: the worker that reaps the job cancels it."""
    store = await app.open()
    handle = await app.enqueue(handlers["run"])
    [claimed] = await store.leases.claim(worker_id="gone", queue="default", kinds={"run": 3}, limit=1, ttl=0.3)
    assert claimed.id == handle.id
    assert await handle.cancel("enough") is Status.RUNNING

    async def gone() -> bool:
        await chores(app)
        return (await handle.get()).status.terminal

    await until(gone)
    assert (await handle.get()).status is Status.CANCELLED
    assert (await handle.get()).note["reason"] == "enough"


async def test_cancelling_a_job_that_was_taken_away(app: App, handlers: dict[str, Any]) -> None:
    async with working(app):
        handle = await app.enqueue(handlers["run"])
        await reached(handle, Status.RUNNING)
        await take_away(await app.open(), handle)
        await handle.cancel()
        assert (await ended(app, handle)).status is Status.CANCELLED
