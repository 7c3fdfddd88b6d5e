"""The worker: what it claims, in which order, and how it goes."""

import asyncio
import contextlib
import time
from typing import Any

import pytest

from perdure import App, Backoff, Fail, JobContext, Request, Status, Worker
from perdure.model.errors import ConfigError, InvalidInput
from perdure.model.workers import WorkerCommand
from perdure.runtime import worker as worker_module
from perdure.store.hints import HintListener
from tests.runtime.support import LINGER, PATIENCE, QUICK, ended, keys, only, reached, soon, types, until, working

LATER = Backoff(base=3600, cap=3600)


async def test_an_idle_worker_is_woken_by_the_enqueue(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the hint, not by the poll: that comes once a minute here."""
    monkeypatch.setattr(worker_module, "POLL", 60.0)

    @app.job
    async def quick(ctx: JobContext) -> str:
        return "done"

    async with working(app):
        await asyncio.sleep(0.1)
        for _ in range(3):
            assert await (await app.enqueue(quick)).result(PATIENCE) == "done"
            await asyncio.sleep(0.02)


async def test_an_idle_worker_looks_within_every_second(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job without a hint, as after the commit of a caller's transaction, does not wait longer."""
    monkeypatch.setattr(worker_module, "POLL", 1.0)
    pauses: list[float] = []
    wait = HintListener.wait

    async def watched(self: HintListener, timeout: float) -> bool:
        pauses.append(timeout)
        return await wait(self, timeout)

    monkeypatch.setattr(HintListener, "wait", watched)
    async with working(app):
        await until(lambda: len(pauses) >= 10)
    assert all(0 < pause < 1 for pause in pauses)
    assert max(pauses) > 0.7, "and not all the time"


async def test_a_kind_without_handler_is_left_to_workers_that_have_one(app: App) -> None:
    @app.job
    async def known(ctx: JobContext) -> str:
        return "done"

    async with working(app):
        handle = await app.enqueue("unknown", {"a": 1}, priority=9, elsewhere=True)
        assert await (await app.enqueue(known)).result(PATIENCE) == "done"
        job = await handle.get()
        assert (job.status, job.attempt, job.version) == (Status.PENDING, 0, 1)

        @app.job(name="unknown")
        async def late(ctx: JobContext, input: dict[str, int]) -> int:
            return input["a"]

        assert await handle.result(PATIENCE) == 1, "a handler that is registered while the worker runs"


async def test_a_worker_of_all_queues(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Woken by the hint, also for a queue that it has not seen before: the poll comes once a minute here."""
    monkeypatch.setattr(worker_module, "POLL", 60.0)

    @app.job
    async def quick(ctx: JobContext) -> str:
        return "done"

    async with working(app, queues="*"):
        for queue in ("default", "a", "b", "a"):
            assert await (await app.enqueue(quick, queue=queue)).result(PATIENCE) == "done"
        [seen] = await app.workers.list()
        assert seen.queues == ("*",)
        assert seen.serves("anything")


async def test_a_worker_of_all_queues_starts_delayed_jobs_in_time(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows when the next one is due, though it asks no queue that has none."""
    monkeypatch.setattr(worker_module, "POLL", 60.0)

    @app.job
    async def quick(ctx: JobContext) -> str:
        return "done"

    handle = await app.enqueue(quick, queue="late", delay=1)
    async with working(app, queues="*"):
        assert await handle.result(PATIENCE) == "done"


async def test_once_it_also_runs_what_its_jobs_enqueue_elsewhere(app: App) -> None:
    @app.job
    async def child(ctx: JobContext) -> None:
        pass

    @app.job
    async def parent(ctx: JobContext) -> None:
        await app.enqueue(child, queue="new")

    await app.enqueue(parent)
    await app.work(once=True, queues=["*"])
    assert await app.jobs.count() == {"COMPLETED": 2}


async def test_no_job_is_in_a_queue_called_as_all_queues(app: App) -> None:
    with pytest.raises(InvalidInput, match="no queue is called '\\*'"):
        await app.enqueue("any", queue="*", elsewhere=True)


async def test_what_the_caller_leaves_open_the_policy_of_the_worker_decides(file_app: App, file_store_url: str) -> None:
    async with App(file_store_url, migrate=True) as caller:
        charged: list[int] = []

        @file_app.job(name="charge", max_retries=0, backoff=LATER)
        async def charge(ctx: JobContext) -> None:
            charged.append(1)
            raise RuntimeError("declined")

        left_open, given = await caller.enqueue("charge"), await caller.enqueue("charge", max_retries=1)
        assert (await left_open.get()).max_retries is None
        async with working(file_app):
            job = await ended(file_app, left_open)
            assert (job.status, job.attempt, job.max_retries) == (Status.DEADLETTER, 1, 0)
            await reached(given, Status.RETRY)
            await given.cancel()
        assert len(charged) == 2


async def test_in_a_rolling_deploy_new_jobs_start_at_once(file_app: App, file_store_url: str) -> None:
    @file_app.job
    async def old(ctx: JobContext) -> None: ...

    async with App(file_store_url, migrate=True) as new:

        @new.job
        async def fresh(ctx: JobContext, n: int) -> int:
            return n

        async with working(file_app), working(file_app), working(file_app), working(new):
            handles = await file_app.enqueue_many(
                [Request("fresh", n, {"elsewhere": True, "priority": 9}) for n in range(200)]
            )
            known = await file_app.enqueue(old)
            assert [await handle.result(PATIENCE) for handle in handles] == [*range(200)]
            await known.result(PATIENCE)
        for handle in handles:
            job = await handle.get()
            assert (job.attempt, job.retry_count) == (1, 0)
            assert [e.type for e in await handle.events()] == ["job_created", "run_started", "job_completed"]


async def test_two_apps_with_different_kinds_share_a_queue(file_app: App, file_store_url: str) -> None:
    @file_app.job(max_retries=0)
    async def left(ctx: JobContext) -> str:
        return "left"

    async with App(file_store_url, migrate=True) as other:

        @other.job(max_retries=0)
        async def right(ctx: JobContext) -> str:
            return "right"

        async with working(file_app, concurrency=2), working(other, concurrency=2):
            lefts = [await file_app.enqueue(left) for _ in range(5)]
            rights = [await other.enqueue(right) for _ in range(5)]
            assert [await h.result(PATIENCE) for h in lefts] == ["left"] * 5
            assert [await h.result(PATIENCE) for h in rights] == ["right"] * 5


async def test_the_most_urgent_come_first_and_equals_in_turn(app: App) -> None:
    order: list[int] = []

    @app.job
    async def note(ctx: JobContext, n: int) -> None:
        order.append(n)

    for n, priority in enumerate([1, 5, 9, 5, 9, 1]):
        await app.enqueue(note, n, priority=priority)
    async with working(app, concurrency=1):
        await until(lambda: len(order) == 6)
    assert order == [2, 4, 1, 3, 0, 5]


async def test_a_delayed_job_waits(app: App) -> None:
    @app.job
    async def quick(ctx: JobContext) -> str:
        return "done"

    async with working(app):
        later = await app.enqueue(quick, delay=0.4)
        much_later = await app.enqueue(quick, delay="1h")
        now = await app.enqueue(quick)
        assert await now.result(PATIENCE) == "done"
        assert await later.result(PATIENCE) == "done"
        job = await later.get()
        assert job.started_at is not None
        assert (job.started_at - job.created_at).total_seconds() >= 0.39
        assert (await much_later.get()).status is Status.PENDING
        await app.jobs.retry_now(much_later.id, "a person could not wait")
        assert await much_later.result(PATIENCE) == "done"


async def test_queues_are_served_in_turn(app: App) -> None:
    order: list[str] = []

    @app.job
    async def note(ctx: JobContext, which: str) -> None:
        order.append(which)

    for n in range(6):
        await app.enqueue(note, "a", queue="a")
        await app.enqueue(note, "elsewhere", queue="elsewhere")
        if n < 3:
            await app.enqueue(note, "b", queue="b", priority=1)
    async with working(app, queues=("a", "b"), concurrency=1):
        await until(lambda: len(order) == 9)
    assert order.index("b") <= 2, "a full queue does not starve another, whatever their priorities"
    assert "elsewhere" not in order


async def test_no_more_jobs_run_at_once_than_there_are_slots(app: App) -> None:
    running, most = 0, 0

    @app.job
    async def work(ctx: JobContext) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        while most < 3:  # however slow the machine is
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        running -= 1

    handles = [await app.enqueue(work) for _ in range(20)]
    async with working(app, concurrency=3) as worker:
        for handle in handles:
            await handle.result(PATIENCE)
        assert worker.busy <= 3
    assert most == 3


async def test_every_job_runs_once_among_several_workers(file_app: App, file_store_url: str) -> None:
    ran: list[int] = []

    @file_app.job(max_retries=0)
    async def work(ctx: JobContext, n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0)

    async with App(file_store_url, migrate=True) as other:
        other.registry.add(work)
        async with working(file_app, concurrency=5), working(file_app, concurrency=5), working(other, concurrency=5):
            handles = [await file_app.enqueue(work, n) for n in range(150)]
            for handle in handles:
                await handle.result(PATIENCE)
    assert sorted(ran) == list(range(150))


async def test_once_works_until_nothing_is_due(app: App) -> None:
    @app.job
    async def parent(ctx: JobContext, depth: int) -> None:
        if depth:
            await app.enqueue(parent, depth - 1)

    @app.job
    async def never(ctx: JobContext) -> None: ...

    handle = await app.enqueue(parent, 3)
    await app.enqueue(never, delay="1h")
    worker = await app.worker(**QUICK)
    await soon(worker.run(once=True))
    assert (await handle.get()).status is Status.COMPLETED
    assert await app.jobs.count() == {"COMPLETED": 4, "PENDING": 1}


async def test_workers_are_listed_and_controlled(app: App) -> None:
    @app.job
    async def hang(ctx: JobContext) -> None:
        await asyncio.sleep(PATIENCE * 2)

    async with working(app, queues=("default", "other"), concurrency=7) as worker:
        handle = await app.enqueue(hang)
        await reached(handle, Status.RUNNING)

        async def seen() -> Any:
            return await app.workers.list()

        [info] = await until(seen)
        assert (info.id, info.kinds, info.concurrency, info.alive) == (worker.id, ("hang",), 7, True)
        assert set(info.queues) == {"default", "other"}
        assert info.held == 1
        await app.workers.command(worker.id, WorkerCommand.STOP_NOW)
        await until(lambda: worker.stopping)
        await until(lambda: worker.busy == 0)
    assert await app.workers.list() == []
    [stopped] = await app.workers.list(include_stopped=True)
    assert stopped.id == worker.id
    assert (await handle.get()).status is Status.RETRY


async def test_worker_options_are_checked(app: App) -> None:
    with pytest.raises(ConfigError, match="concurency"):
        await app.worker(concurency=3)
    for bad in ({"queues": ("a b",)}, {"queues": ()}, {"concurrency": 0}, {"lease": 0}, {"linger": -1}, {"chores": 0}):
        with pytest.raises((ConfigError, ValueError)):
            await app.worker(**bad)


# -- going ------------------------------------------------------------------------------------------------------------------


async def start(app: App, **options: Any) -> tuple[Worker, "asyncio.Task[None]"]:
    worker = await app.worker(**{**QUICK, **options})
    return worker, asyncio.create_task(worker.run())


async def test_a_graceful_stop_lets_a_step_finish_and_hands_the_job_back(app: App) -> None:
    release, ran = asyncio.Event(), []

    async def first() -> str:
        ran.append("first")
        await release.wait()
        return "1"

    @app.job(max_retries=0)
    async def two(ctx: JobContext) -> str:
        return await ctx.step("first", first) + await ctx.step("second", str, 2)

    worker, running = await start(app)
    handle = await app.enqueue(two)
    await until(lambda: ran)
    worker.stop()
    await asyncio.sleep(0.5)
    assert not running.done()
    release.set()
    await soon(running)
    job = await handle.get()
    assert (job.status, job.retry_count) == (Status.RETRY, 0)
    assert job.due_at is not None
    assert job.due_at <= await (await app.open()).now()
    log = await handle.events()
    assert keys(log, "node_finished") == ["first"]
    assert only(log, "job_retrying").payload["reason"] == "worker_drained"
    async with working(app):
        assert await handle.result(PATIENCE) == "12"
    assert ran == ["first"]
    assert (await handle.get()).retry_count == 0


async def test_a_graceful_stop_lets_the_last_step_finish_the_job(app: App) -> None:
    release, ran = asyncio.Event(), []

    async def last() -> str:
        ran.append(1)
        await release.wait()
        return "done"

    @app.job
    async def one(ctx: JobContext) -> str:
        return await ctx.step("last", last)

    worker, running = await start(app)
    handle = await app.enqueue(one)
    await until(lambda: ran)
    worker.stop()
    release.set()
    await soon(running)
    assert (await handle.get()).status is Status.COMPLETED


async def test_a_graceful_stop_lets_parallel_steps_finish_and_begins_no_other(app: App) -> None:
    release, ran = asyncio.Event(), []

    async def slow(n: int) -> int:
        ran.append(n)
        await release.wait()
        return n

    @app.job(max_retries=0)
    async def fan(ctx: JobContext) -> list[int]:
        async def branch(n: int) -> int:
            await ctx.step(f"a{n}", slow, n)
            return await ctx.step(f"b{n}", slow, n + 10)

        async def other() -> int:
            await ctx.sleep("nap", 0.001)
            return await ctx.step("c", int, 7)

        return (await asyncio.gather(*(branch(n) for n in range(3)), other()))[:3]

    worker, running = await start(app)
    handle = await app.enqueue(fan)
    await until(lambda: len(ran) == 3)
    worker.stop()
    await asyncio.sleep(0.5)  # it hears of it after its claim that may be under way
    release.set()
    await soon(running)
    assert sorted(ran) == [0, 1, 2]
    job = await handle.get()
    assert (job.status, job.retry_count) == (Status.RETRY, 0)
    assert {"a0", "a1", "a2"} <= set(keys(await handle.events(), "node_finished"))
    async with working(app):
        assert await handle.result(PATIENCE) == [10, 11, 12]
    assert sorted(ran) == [0, 1, 2, 10, 11, 12]


@pytest.mark.parametrize("wait", ["sleep", "short sleep", "approve"])
async def test_a_graceful_stop_does_not_wait_for_what_only_waits(app: App, wait: str) -> None:
    waiting = asyncio.Event()

    @app.job(max_retries=0)
    async def waits(ctx: JobContext) -> str:
        waiting.set()
        if wait == "approve":
            await ctx.approve("ok", title="?", expires_in="1h", on_expiry="continue")
        else:
            await ctx.sleep("nap", "1h" if wait == "sleep" else 8)
        return "done"

    worker, running = await start(app, linger=10 if wait == "short sleep" else LINGER)
    handle = await app.enqueue(waits)
    await until(waiting.is_set)
    await asyncio.sleep(0.05)
    worker.stop()
    before = time.monotonic()
    await soon(running)
    assert time.monotonic() - before < 5
    job = await handle.get()
    assert job.status in (Status.RETRY, Status.PARKED, Status.WAITING_FOR_APPROVAL)
    assert job.retry_count == 0
    await handle.cancel()


async def test_the_second_stop_cuts_a_step_off(app: App) -> None:
    ran: list[int] = []

    async def hang() -> str:
        ran.append(1)
        if len(ran) == 1:
            await asyncio.sleep(PATIENCE * 2)
        return "done"

    @app.job(max_retries=0)
    async def one(ctx: JobContext) -> str:
        return await ctx.step("hang", hang)

    worker, running = await start(app)
    handle = await app.enqueue(one)
    await until(lambda: ran)
    worker.stop()
    await asyncio.sleep(0.05)
    assert not running.done()
    worker.stop(now=True)
    await soon(running)
    job = await handle.get()
    assert (job.status, job.retry_count) == (Status.RETRY, 0)
    assert only(await handle.events(), "job_retrying").payload["reason"] == "worker_stopped"
    async with working(app):
        assert await handle.result(PATIENCE) == "done"


async def test_a_drain_has_a_limit(app: App) -> None:
    @app.job
    async def hang(ctx: JobContext) -> None:
        await asyncio.sleep(PATIENCE * 2)

    worker, running = await start(app, drain_timeout=0.1)
    handle = await app.enqueue(hang)
    await reached(handle, Status.RUNNING)
    await until(lambda: worker.busy)
    worker.stop()
    await soon(running)
    assert (await handle.get()).status is Status.RETRY


async def test_prefetched_jobs_are_given_back_on_stop(app: App) -> None:
    go, started = asyncio.Event(), []

    @app.job(max_retries=0)
    async def work(ctx: JobContext, n: int) -> int:
        started.append(n)
        if n == -1:
            await go.wait()
        return n

    worker, running = await start(app, concurrency=1)
    for n in range(30):  # the worker learns that these are quick, and claims ahead
        await app.enqueue(work, n)
    await until(lambda: len(started) == 30)
    requests = [Request(work, -1, {"priority": 9}), *(Request(work, 100 + n) for n in range(3))]
    ahead = (await app.enqueue_many(requests))[1:]  # together, so that one claim takes them all
    await until(lambda: -1 in started)
    worker.stop()
    go.set()
    await soon(running)
    for handle in ahead:
        job = await handle.get()
        assert (job.status, job.retry_count) == (Status.RETRY, 0)
        assert await app.jobs.runs(handle.id) == []
    assert not any(n >= 100 for n in started)
    async with working(app):
        for handle in ahead:
            await handle.result(PATIENCE)


async def test_a_worker_may_be_stopped_before_it_runs_and_twice(app: App) -> None:
    worker = await app.worker(**QUICK)
    worker.stop()
    worker.stop()
    await soon(worker.run())


async def test_jobs_enqueue_jobs(app: App) -> None:
    @app.job
    async def child(ctx: JobContext, n: int) -> int:
        return n * n

    @app.job
    async def parent(ctx: JobContext) -> list[int]:
        handles = [await app.enqueue(child, n, idempotency_key=f"{ctx.job_id}:{n}") for n in range(5)]
        return [await h.result(PATIENCE) for h in handles]

    @app.job
    async def failing(ctx: JobContext) -> None:
        raise Fail("no")

    async with working(app):
        assert await (await app.enqueue(parent)).result(PATIENCE) == [0, 1, 4, 9, 16]
        job = await ended(app, await app.enqueue(failing))
        assert job.status is Status.FAILED


async def test_a_thousand_short_jobs(app: App) -> None:
    """Prefetch, batches and the commit of ends in the background: every job ends once, with its own result."""

    @app.job(max_retries=0)
    async def work(ctx: JobContext, n: int) -> int:
        if n % 100 == 0:
            await ctx.step("now and then", str, n)
        return n

    handles = await app.enqueue_many([Request(work, n) for n in range(1000)])
    async with working(app, concurrency=50):
        for n, handle in enumerate(handles):
            job = await ended(app, handle)
            assert (job.status, job.result, job.retry_count) == (Status.COMPLETED, n, 0)
    assert await app.jobs.count() == {"COMPLETED": 1000}
    assert types(await handles[0].events()) == ["job_created", "run_started", "node_finished", "job_completed"]


async def test_a_cancellation_that_a_handler_leaves_behind_does_not_hit_its_end(app: App) -> None:
    @app.job
    async def careless(ctx: JobContext) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "done"

    async with working(app):
        handle = await app.enqueue(careless)
        assert await handle.result(PATIENCE) == "done"
    assert (await handle.get()).attempt == 1


async def test_a_worker_whose_task_is_cancelled_hands_back_what_runs(app: App) -> None:
    left: list[str] = []
    began = asyncio.Event()

    @app.job
    async def slow(ctx: JobContext) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.append("handler")

    handle = await app.enqueue(slow)
    working = asyncio.create_task(app.work(**QUICK))
    await soon(began.wait())
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(working)
    assert left == ["handler"], "it does not go on without a heartbeat"
    job = await handle.get()
    assert (job.status, job.retry_count, job.lease) == (Status.RETRY, 0, None)


async def test_a_worker_whose_task_is_cancelled_twice_waits_for_no_handler(app: App) -> None:
    began, gone = asyncio.Event(), asyncio.Event()

    @app.job
    async def stubborn(ctx: JobContext) -> None:
        began.set()
        while not gone.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gone.wait()

    handle = await app.enqueue(stubborn)
    working = asyncio.create_task(app.work(**QUICK))
    await soon(began.wait())
    working.cancel()
    await asyncio.sleep(0.1)
    assert not working.done()
    working.cancel()
    try:
        async with asyncio.timeout(1.5):
            with pytest.raises(asyncio.CancelledError):
                await working
    finally:
        gone.set()
    await reached(handle, Status.RETRY)
