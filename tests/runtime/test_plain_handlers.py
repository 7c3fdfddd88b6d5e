"""Plain (sync) handlers: the same promises, in threads."""

import asyncio
import threading
import time
from decimal import Decimal
from typing import Any

import pytest

from perdure import App, BlockingContext, Fail, JobContext, Retry, Status, Suspended, idempotency_key
from perdure.model.errors import InvalidInput
from tests.runtime.support import (
    LINGER,
    LONG,
    NOW,
    PATIENCE,
    ended,
    keys,
    only,
    reached,
    soon,
    take_away,
    types,
    until,
    working,
)


class Gate:
    """Where a thread waits for the test; opens by itself so that a failing test does not hang."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self._open.wait(PATIENCE)

    def open(self) -> None:
        self._open.set()


async def test_everything_in_short(app: App) -> None:
    ran: list[str] = []
    loop_thread = threading.get_ident()

    def plain(name: str) -> str:
        ran.append(name)
        return idempotency_key()

    async def coroutine(name: str) -> str:
        ran.append(name)
        return name

    @app.job(backoff=NOW)
    def all_of_it(ctx: BlockingContext, n: int) -> dict[str, Any]:
        assert threading.get_ident() != loop_thread
        result = {
            "n": n,
            "key": ctx.step("plain", plain, "a"),
            "coroutine": ctx.options(retries=1).step("coroutine", coroutine, "b"),
            "tool": ctx.tool("tool", plain, "c"),
            "again": ctx.step("plain", coroutine, "d"),
            "keyed": ctx.options(key="x").step("plain", coroutine, "e"),
            "checkpoint": ctx.last_checkpoint,
            "expected key": ctx.idempotency_key("plain", kind="step"),
        }
        ctx.sleep("short", LINGER / 2)
        ctx.progress(0.5, "half")
        ctx.checkpoint({"attempt": ctx.attempt})
        ctx.emit("note", [1])
        ctx.usage(tokens=5, cost=0.5)
        if ctx.attempt == 1:
            raise OSError("replay, please")
        ctx.sleep("long", LINGER * 3)
        return result

    async with working(app):
        handle = await app.enqueue(all_of_it, 7, goal="everything")
        result = await handle.result(PATIENCE)
    assert result.pop("key") == result.pop("expected key")
    assert len(result.pop("tool")) == 32
    assert result == {"n": 7, "coroutine": "b", "again": "d", "keyed": "e", "checkpoint": {"attempt": 2}}
    assert ran == ["a", "b", "c", "d", "e"]
    job = await handle.get()
    assert (job.attempt, job.retry_count) == (3, 1)
    assert (job.state.tokens, job.state.cost, job.state.progress) == (5, Decimal("0.5"), 0.5)
    assert {"job_waiting", "job_parked", "tool_called", "tool_returned"} <= set(types(await handle.events()))


async def test_errors_and_verdicts(app: App) -> None:
    @app.job(max_retries=0)
    def fails(ctx: BlockingContext, how: str) -> None:
        if how == "fail":
            raise Fail("no use")
        if how == "retry":
            raise Retry("later", after=50)
        if how == "exit":
            raise SystemExit(1)
        if how == "interrupt":
            raise KeyboardInterrupt
        if how == "stop":
            raise StopIteration
        if how == "cancelled":
            raise KeyError("plain")
        raise ExceptionGroup("several", [ValueError("a"), Fail("deep inside")])

    async with working(app):
        jobs = {
            h: await ended(app, await app.enqueue(fails, h))
            for h in ("fail", "exit", "interrupt", "stop", "error", "group")
        }
        assert (jobs["fail"].status, jobs["fail"].error_message) == (Status.FAILED, "no use")
        assert (jobs["group"].status, jobs["group"].error_message) == (Status.FAILED, "deep inside")
        for how, word in (("exit", "SystemExit"), ("interrupt", "KeyboardInterrupt"), ("stop", "StopIteration")):
            assert jobs[how].status is Status.DEADLETTER
            assert word in (jobs[how].error_message or "")
        retried = await reached(await app.enqueue(fails, "retry", max_retries=1), Status.RETRY)
        assert retried.retry_count == 1


async def test_many_plain_handlers_with_plain_steps_find_threads(app: App) -> None:
    """Handlers and the steps they wait for must not share threads, or all would wait for one another."""
    together = threading.Barrier(12)

    @app.job(max_retries=0)
    def handler(ctx: BlockingContext, n: int) -> int:
        together.wait(PATIENCE)
        return ctx.step("plain", int, n)

    async with working(app, concurrency=12):
        handles = [await app.enqueue(handler, n) for n in range(12)]
        assert [await h.result(PATIENCE) for h in handles] == list(range(12))


async def test_a_plain_handler_over_time_is_stopped_at_its_next_call(app: App) -> None:
    gate, seen = Gate(), []

    @app.job(timeout=0.7, max_retries=0)
    def slow(ctx: BlockingContext) -> str:
        ctx.step("before", str, 1)
        gate.wait()
        try:
            ctx.step("after", str, 2)
        except BaseException as error:
            seen.append(type(error))
            raise
        return "too late"

    async with working(app, concurrency=1) as worker:
        handle = await app.enqueue(slow)
        await until(gate.reached.is_set)
        await asyncio.sleep(0.8)
        assert worker.busy == 1, "the slot is held until the thread returns"
        gate.open()
        job = await ended(app, handle)
    assert (job.status, job.error_kind) == (Status.DEADLETTER, "timeout")
    assert keys(await handle.events(), "node_finished") == ["before"]
    assert seen == [Suspended]


async def test_a_plain_handler_that_returns_after_its_time_has_still_timed_out(app: App) -> None:
    gate = Gate()

    @app.job(timeout=0.1, max_retries=0)
    def slow(ctx: BlockingContext) -> str:
        gate.wait()
        return "too late"

    async with working(app):
        handle = await app.enqueue(slow)
        await until(gate.reached.is_set)
        await asyncio.sleep(0.3)
        gate.open()
        job = await ended(app, handle)
    assert (job.status, job.error_kind) == (Status.DEADLETTER, "timeout")


async def test_a_step_of_a_plain_handler_that_takes_too_long(app: App) -> None:
    gate = Gate()

    @app.job(max_retries=0)
    def gives_up(ctx: BlockingContext) -> str:
        try:
            ctx.options(timeout=0.1).step("slow", gate.wait)
        except TimeoutError:
            gate.open()
            return "gave up"
        return "never"

    async with working(app):
        assert await (await app.enqueue(gives_up)).result(PATIENCE) == "gave up"


@pytest.mark.parametrize("where", ["sleep", "short sleep", "async step", "approve", "own code"])
async def test_cancelling_a_plain_handler(app: App, where: str) -> None:
    gate, seen, steps = Gate(), [], []

    async def hang() -> None:
        steps.append(1)
        await asyncio.sleep(PATIENCE * 2)

    @app.job(max_retries=0)
    def handler(ctx: BlockingContext) -> str:
        try:
            if where == "sleep":
                ctx.sleep("nap", LONG)
            elif where == "short sleep":
                ctx.sleep("nap", 5)
            elif where == "async step":
                ctx.step("hang", hang)
            elif where == "approve":
                ctx.approve("ok", title="?")
            else:
                gate.reached.set()
                for _ in range(int(PATIENCE / 0.01)):
                    time.sleep(0.01)
                    ctx.emit("tick", None)
        except Exception as error:  # noqa: BLE001  what stops a handler must pass by here
            seen.append(error)
        return "went on"

    status = {"sleep": Status.PARKED, "short sleep": Status.WAITING, "approve": Status.WAITING_FOR_APPROVAL}
    async with working(app, linger=10 if where == "short sleep" else LINGER) as worker:
        handle = await app.enqueue(handler)
        if where == "own code":
            await until(gate.reached.is_set)
        elif where == "async step":
            await until(lambda: steps)
        else:
            await reached(handle, status[where])
        await handle.cancel("changed my mind")
        job = await ended(app, handle)
        await until(lambda: worker.busy == 0)
    assert job.status is Status.CANCELLED
    assert seen == [], "what stops a handler is no Exception"
    assert only(await handle.events(), "job_cancelled").payload["reason"] == "changed my mind"


async def test_a_plain_handler_whose_lease_is_lost_records_nothing_more(app: App) -> None:
    gate, seen = Gate(), []

    @app.job(max_retries=0)
    def handler(ctx: BlockingContext) -> str:
        if ctx.attempt > 1:
            return "by the second"
        gate.wait()
        try:
            ctx.step("late", str, "x")
        except BaseException as error:
            seen.append(type(error))
            raise
        return "by the first"

    async with working(app):
        handle = await app.enqueue(handler, max_retries=1)
        await until(gate.reached.is_set)
        await take_away(await app.open(), handle)
        assert await handle.result(PATIENCE) == "by the second"
        gate.open()
        await until(lambda: seen)
    assert seen == [Suspended]
    assert "node_finished" not in types(await handle.events())


async def test_a_graceful_stop_waits_for_a_plain_handler(app: App) -> None:
    gate = Gate()

    @app.job(max_retries=0)
    def handler(ctx: BlockingContext) -> str:
        ctx.step("first", gate.wait)
        ctx.step("second", str, "x")
        return "done"

    worker = await app.worker(lease=3, linger=LINGER, drain_timeout=PATIENCE, concurrency=2)
    running = asyncio.create_task(worker.run())
    handle = await app.enqueue(handler)
    await until(gate.reached.is_set)
    worker.stop()
    await asyncio.sleep(0.5)
    gate.open()
    await soon(running)
    job = await handle.get()
    assert (job.status, job.retry_count) == (Status.RETRY, 0)
    assert keys(await handle.events(), "node_finished") == ["first"]
    async with working(app):
        assert await handle.result(PATIENCE) == "done"


async def test_plain_and_async_handlers_share_a_worker(app: App) -> None:
    @app.job
    def plain(ctx: BlockingContext, n: int) -> int:
        ctx.sleep("nap", 0.01)
        return n

    @app.job
    async def other(ctx: JobContext, n: int) -> int:
        await ctx.sleep("nap", 0.01)
        return n

    async with working(app, concurrency=4):
        handles = [await app.enqueue(plain if n % 2 else other, n) for n in range(40)]
        assert [await h.result(PATIENCE) for h in handles] == list(range(40))


async def test_a_call_on_the_event_loop_fails_the_job_instead_of_stopping_the_worker(app: App) -> None:
    @app.job
    def nested(ctx: BlockingContext) -> int:
        async def inner() -> int:
            return ctx.step("inner", lambda: 1)

        return ctx.step("outer", inner)

    @app.job
    async def other(ctx: JobContext) -> int:
        return await ctx.step("a", lambda: 1)

    async with working(app):
        job = await ended(app, await app.enqueue(nested))
        assert job.status is Status.FAILED
        assert "on the worker's event loop" in (job.error_message or "")
        assert await (await app.enqueue(other)).result(PATIENCE) == 1


async def test_a_generator_is_no_handler(app: App) -> None:
    def plain(ctx: BlockingContext) -> Any:
        yield ctx.step("a", lambda: 1)

    async def coroutine(ctx: JobContext) -> Any:
        yield await ctx.step("a", lambda: 1)

    for fn in (plain, coroutine):
        with pytest.raises(InvalidInput, match="is a generator"):
            app.job(fn)
