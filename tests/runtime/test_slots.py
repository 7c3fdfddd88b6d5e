"""Slots: attempts that never wait share a task; each has its own context variables, and stops, fails and times out by itself."""

import asyncio
import contextvars
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog

from perdure import App, JobContext, Request, Status
from perdure.model.current_attempt import attempt_ids
from perdure.runtime import run, slots, worker
from tests.runtime.support import LINGER, PATIENCE, check_every_job, ended, soon, until, working

tag: contextvars.ContextVar[str] = contextvars.ContextVar("tag", default="none")
Seen = list[Any]


@pytest.fixture
async def app() -> AsyncIterator[App]:
    """An App in memory: slots know nothing of the store."""
    async with App("memory:", migrate=True) as app:
        yield app
        await check_every_job(app)


async def enqueue_many(app: App, handler: Any, inputs: list[Any]) -> list[Any]:
    return await app.enqueue_many([Request(handler, value) for value in inputs])


async def test_attempts_that_never_wait_share_a_task(app: App) -> None:
    tasks: Seen = []

    @app.job
    async def quick(ctx: JobContext, n: int) -> int:
        tasks.append(asyncio.current_task())
        return n

    handles = await enqueue_many(app, quick, list(range(200)))
    async with working(app, concurrency=2):
        assert [await handle.result(PATIENCE) for handle in handles] == list(range(200))
    assert None not in tasks
    assert len(set(tasks)) < 100


async def test_an_attempt_that_waits_keeps_its_task_and_the_next_have_another(app: App) -> None:
    before: dict[int, Any] = {}
    after: dict[int, Any] = {}
    gate = asyncio.Event()

    @app.job
    async def waits(ctx: JobContext, n: int) -> None:
        before[n] = asyncio.current_task()
        await gate.wait()
        after[n] = asyncio.current_task()

    handles = await enqueue_many(app, waits, list(range(5)))
    async with working(app, concurrency=5) as running:
        await until(lambda: len(before) == 5)
        assert running.busy == 5
        gate.set()
        for handle in handles:
            await handle.result(PATIENCE)
    assert before == after, "it goes on in the task it began in"
    assert len(set(before.values())) == 5


@pytest.mark.parametrize("pauses", ["never", "later", "at once"])
async def test_what_one_handler_sets_in_its_context_no_other_sees(app: App, pauses: str) -> None:
    seen: Seen = []

    @app.job
    async def sets(ctx: JobContext, n: int) -> None:
        if pauses == "at once":
            await asyncio.sleep(0)
        seen.append((tag.get(), structlog.contextvars.get_contextvars(), attempt_ids()["job_id"] == str(ctx.job_id)))
        tag.set(f"job {n}")
        structlog.contextvars.bind_contextvars(n=n)
        if pauses == "later":
            await asyncio.sleep(0.001)
        seen.append((tag.get(), structlog.contextvars.get_contextvars(), attempt_ids()["job_id"] == str(ctx.job_id)))

    handles = await enqueue_many(app, sets, list(range(50)))
    async with working(app, concurrency=3):
        for handle in handles:
            await handle.result(PATIENCE)
    began = [entry for entry in seen if entry == ("none", {}, True)]
    went_on = [entry for entry in seen if entry != ("none", {}, True)]
    assert len(began) == 50
    assert sorted(entry[0] for entry in went_on) == sorted(f"job {n}" for n in range(50))
    assert all(entry == (f"job {entry[1]['n']}", entry[1], True) for entry in went_on)
    assert (tag.get(), attempt_ids()) == ("none", {}), "nor does the worker"


async def test_what_a_handler_calls_and_starts_sees_its_context(app: App) -> None:
    async def child() -> str:
        return tag.get()

    def plain() -> str:
        return tag.get()

    @app.job
    async def parent(ctx: JobContext, n: int) -> list[str]:
        tag.set(f"job {n}")
        started = asyncio.create_task(child())
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: found.set_result(tag.get()))
        return [
            await child(),
            await started,
            await found,
            await ctx.step("plain", plain),
            await ctx.step("child", child),
        ]

    handles = await enqueue_many(app, parent, list(range(10)))
    async with working(app, concurrency=4):
        for n, handle in enumerate(handles):
            assert await handle.result(PATIENCE) == [f"job {n}"] * 5


async def test_a_token_of_a_context_variable_is_good_after_a_wait(app: App) -> None:
    @app.job
    async def resets(ctx: JobContext) -> str:
        token = tag.set("mine")
        await asyncio.sleep(0.001)
        tag.reset(token)
        return tag.get()

    async with working(app):
        assert await (await app.enqueue(resets)).result(PATIENCE) == "none"


async def test_timeouts_groups_and_locks_work_in_a_shared_task(app: App) -> None:
    lock = asyncio.Lock()

    async def fail() -> None:
        raise ValueError("a branch failed")

    @app.job
    async def uses(ctx: JobContext, n: int) -> list[str]:
        said = []
        async with asyncio.timeout(60), lock:
            said.append("in time")
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
        except TimeoutError:
            said.append("timed out")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                group.create_task(asyncio.sleep(60))
        except* ValueError:
            said.append("group failed")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.sleep(0, "group ended"))
        said.append(task.result())
        return said

    handles = await enqueue_many(app, uses, list(range(20)))
    async with working(app, concurrency=3):
        for handle in handles:
            assert await handle.result(PATIENCE) == ["in time", "timed out", "group failed", "group ended"]


async def test_no_more_than_the_concurrency_run_at_once(app: App) -> None:
    running, most = 0, 0

    @app.job
    async def counted(ctx: JobContext, n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if n % 3:
            await asyncio.sleep(0.001 * (n % 5))
        running -= 1

    handles = await enqueue_many(app, counted, list(range(100)))
    async with working(app, concurrency=4):
        for handle in handles:
            await handle.result(PATIENCE)
    assert most == 4, "and all slots are used"


async def test_slots_are_filled_while_one_handler_waits_for_long(app: App) -> None:
    gate = asyncio.Event()

    @app.job
    async def holds(ctx: JobContext) -> None:
        await gate.wait()

    @app.job
    async def quick(ctx: JobContext, n: int) -> int:
        return n

    held = await app.enqueue(holds, priority=9)
    handles = await enqueue_many(app, quick, list(range(50)))
    async with working(app, concurrency=2):
        for handle in handles:
            await handle.result(PATIENCE)
        assert await held.status() is Status.RUNNING
        gate.set()
        await held.result(PATIENCE)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]
)
async def test_what_a_handler_raises_ends_its_attempt_alone(app: App, error: BaseException, waits: bool) -> None:
    @app.job(max_retries=0)
    async def breaks(ctx: JobContext, n: int) -> int:
        if waits:
            await asyncio.sleep(0)
        if n == 5:
            raise error
        return n

    handles = await enqueue_many(app, breaks, list(range(10)))
    async with working(app, concurrency=2):
        for n, handle in enumerate(handles):
            if n == 5:
                job = await ended(app, handle)
                assert job.status in (Status.FAILED, Status.DEADLETTER)
                assert type(error).__name__ in (job.error_message or "")
            else:
                assert await handle.result(PATIENCE) == n


@pytest.mark.parametrize("awaits_after", [False, True])
async def test_a_handler_that_cancels_its_own_task_stops_no_other(app: App, awaits_after: bool) -> None:
    @app.job
    async def cancels(ctx: JobContext, n: int) -> int:
        if n == 3:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            if awaits_after:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    return -n
        return n

    handles = await enqueue_many(app, cancels, list(range(20)))
    async with working(app, concurrency=2):
        for n, handle in enumerate(handles):
            assert await handle.result(PATIENCE) == (-n if n == 3 and awaits_after else n)


async def test_an_attempt_that_began_in_a_shared_task_is_cancelled_while_it_waits(app: App) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @app.job
    async def waits(ctx: JobContext) -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    @app.job
    async def quick(ctx: JobContext, n: int) -> int:
        return n

    async with working(app, concurrency=2):
        quicks = await enqueue_many(app, quick, list(range(20)))
        handle = await app.enqueue(waits)
        await soon(began.wait())
        await handle.cancel()
        await soon(stopped.wait())
        assert (await ended(app, handle)).status is Status.CANCELLED
        for n, each in enumerate(quicks):
            assert await each.result(PATIENCE) == n
        assert await (await app.enqueue(quick, 7)).result(PATIENCE) == 7, "its slot is free again"


async def test_an_attempt_that_began_in_a_shared_task_times_out_while_it_waits(app: App) -> None:
    @app.job(timeout=0.05, max_retries=0)
    async def slow(ctx: JobContext, n: int) -> int:
        if n % 2:
            await asyncio.sleep(3600)
        return n

    handles = await enqueue_many(app, slow, list(range(10)))
    async with working(app, concurrency=3):
        for n, handle in enumerate(handles):
            job = await ended(app, handle)
            assert (job.status, job.error_kind) == (
                (Status.DEADLETTER, "timeout") if n % 2 else (Status.COMPLETED, None)
            )


async def test_an_error_is_handled_where_it_is_raised(app: App) -> None:
    """The attempt is resumed with no error being handled, so a bare `raise` has nothing to raise again."""
    seen: Seen = []

    @app.job
    async def catches(ctx: JobContext) -> None:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
        except TimeoutError:
            pass
        seen.append(sys.exc_info())
        try:
            raise ValueError("another")
        except ValueError as error:
            seen.append(error.__context__)

    async with working(app):
        await (await app.enqueue(catches)).result(PATIENCE)
    assert seen == [(None, None, None), None]


async def test_a_drain_waits_for_attempts_in_full_slots_and_hands_back_the_others(app: App) -> None:
    began, gate = [], asyncio.Event()

    @app.job
    async def work(ctx: JobContext, n: int) -> int:
        async def wait() -> int:
            await gate.wait()
            return n

        began.append(n)
        return await ctx.step("wait", wait)

    handles = await enqueue_many(app, work, list(range(6)))
    running = await app.worker(concurrency=2, lease=3, linger=LINGER, drain_timeout=PATIENCE)
    task = asyncio.create_task(running.run())
    await until(lambda: len(began) == 2)
    running.stop()
    await asyncio.sleep(0.05)
    assert not task.done()
    gate.set()
    await soon(task)
    jobs = [await handle.get() for handle in handles]
    assert [job.status for job in jobs if job.id in {handles[n].id for n in began}] == [Status.COMPLETED] * 2
    assert [job.lease for job in jobs] == [None] * 6
    await app.work(once=True)
    assert [await handle.result(PATIENCE) for handle in handles] == list(range(6))


async def test_a_worker_with_nothing_left_to_do_ends(app: App) -> None:
    @app.job
    async def mixed(ctx: JobContext, n: int) -> int:
        if n % 2:
            await asyncio.sleep(0.001)
        return n

    handles = await enqueue_many(app, mixed, list(range(50)))
    await soon(app.work(once=True, concurrency=3))
    assert [await handle.status() for handle in handles] == [Status.COMPLETED] * 50


async def test_the_event_loop_gets_its_turn_between_attempts_that_never_wait(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "TURN", 0.0)
    monkeypatch.setattr(worker, "POLL", 0.05)
    order: Seen = []

    @app.job
    async def quick(ctx: JobContext, n: int) -> None:
        order.append(n)

    async def other() -> None:
        while len(order) < 50:
            order.append("other") if order and order[-1] != "other" else None
            await asyncio.sleep(0)

    handles = await enqueue_many(app, quick, list(range(50)))
    watching = asyncio.create_task(other())
    async with working(app, concurrency=50):
        for handle in handles:
            await handle.result(PATIENCE)
        await soon(watching)
    assert order.count("other") > 10


async def test_a_bug_of_the_worker_itself_stops_no_other_attempt(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease of its job expires, and it is taken over."""

    @app.job
    async def quick(ctx: JobContext, n: int) -> int:
        return n

    broken: Seen = []
    original = run.Run

    def breaks_once(*args: Any, **kwargs: Any) -> Any:
        if not broken:
            broken.append(True)
            raise RuntimeError("a bug")
        return original(*args, **kwargs)

    monkeypatch.setattr(worker, "Run", breaks_once)
    handles = await enqueue_many(app, quick, list(range(10)))
    async with working(app, concurrency=1, lease=1, chores=0.1):
        assert [await handle.result(PATIENCE) for handle in handles] == list(range(10))
    assert broken


@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio has eager tasks from Python 3.12 on")
async def test_jobs_run_concurrently_in_a_program_whose_tasks_are_eager(app: App) -> None:
    began: Seen = []
    gate = asyncio.Event()

    @app.job
    async def quick(ctx: JobContext, n: int) -> int:
        return n

    @app.job
    async def waits(ctx: JobContext, n: int) -> None:
        began.append(n)
        await gate.wait()

    loop = asyncio.get_running_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009  the type checker looks at Python 3.11
    try:
        handles = await enqueue_many(app, quick, list(range(50))) + await enqueue_many(app, waits, list(range(20)))
        async with working(app, concurrency=20):
            await until(lambda: len(began) == 20)
            gate.set()
            for handle in handles:
                await handle.result(PATIENCE)
    finally:
        loop.set_task_factory(None)
