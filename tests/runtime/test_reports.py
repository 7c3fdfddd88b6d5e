"""Usage, events of a handler's own and progress count once, whatever is replayed."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from perdure import App, BlockingContext, JobContext
from perdure.model.jobs import JobState
from tests.conformance.support import checked_log
from tests.runtime.support import NOW, PATIENCE, ended, keys, types, working


async def state_of(app: App, handle: Any) -> JobState:
    await checked_log(await app.open(), handle.id)
    return (await app.jobs.get(handle.id)).state


async def test_usage_and_events_count_once_however_often_they_are_replayed(app: App) -> None:
    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> str:
        await ctx.usage(tokens=1000, cost="0.10")
        await ctx.emit("asked", {"n": 1})
        await ctx.sleep("first", 0.35)
        await ctx.usage(tokens=500, cost="0.20")
        await ctx.emit("asked", {"n": 2})
        if ctx.retry_count < 2:
            raise OSError("replay, please")
        await ctx.sleep("second", 0.35)
        await ctx.emit("done")
        return "done"

    async with working(app, linger=0.0):
        handle = await app.enqueue(agent)
        assert await handle.result(PATIENCE) == "done"
    state = await state_of(app, handle)
    assert (state.tokens, state.cost) == (1500, Decimal("0.30"))
    events = await handle.events()
    assert types(events).count("run_started") > 3
    assert [e.payload for e in events if e.type == "asked"] == [{"n": 1}, {"n": 2}]
    assert types(events).count("done") == 1
    assert keys(events, "usage_recorded") == ["usage", "usage#2"]


async def test_a_plain_handler_counts_once_as_well(app: App) -> None:
    @app.job(backoff=NOW)
    def agent(ctx: BlockingContext) -> None:
        ctx.usage(tokens=3, cost=Decimal("0.1"))
        ctx.emit("asked")
        if ctx.attempt < 3:
            raise OSError("replay, please")

    async with working(app):
        handle = await app.enqueue(agent)
        await handle.result(PATIENCE)
    assert (await state_of(app, handle)).tokens == 3
    assert types(await handle.events()).count("asked") == 1


@pytest.mark.parametrize("plain", [False, True])
async def test_inside_a_step_every_real_call_counts_and_no_replay(app: App, plain: bool) -> None:
    calls: list[int] = []

    def called(ctx: Any) -> None:
        calls.append(1)
        if len(calls) < 3:
            raise OSError("once more")

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> None:
        async def ask() -> None:
            await ctx.usage(tokens=10, cost="0.1")
            await ctx.usage(tokens=1)
            await ctx.emit("asked")
            called(ctx)

        await ctx.options(retries=1, backoff=NOW).step("ask", ask)
        await ctx.usage(tokens=100)
        if ctx.attempt < 4:
            raise OSError("replay, please")

    @app.job(backoff=NOW)
    def plain_agent(ctx: BlockingContext) -> None:
        def ask() -> None:
            ctx.usage(tokens=10, cost="0.1")
            ctx.usage(tokens=1)
            ctx.emit("asked")
            called(ctx)

        ctx.options(retries=1, backoff=NOW).step("ask", ask)
        ctx.usage(tokens=100)
        if ctx.attempt < 4:
            raise OSError("replay, please")

    async with working(app):
        handle = await app.enqueue(plain_agent if plain else agent)
        await handle.result(PATIENCE)
    state = await state_of(app, handle)
    assert (state.tokens, state.cost) == (133, Decimal("0.3"))
    events = await handle.events()
    assert types(events).count("asked") == 3
    assert keys(events, "usage_recorded") == [
        "usage@step:ask/1.1",
        "usage@step:ask/1.1#2",
        "usage@step:ask/1.2",
        "usage@step:ask/1.2#2",
        "usage@step:ask/2.1",
        "usage@step:ask/2.1#2",
        "usage",
    ]


async def test_a_key_tells_parallel_reports_apart(app: App) -> None:
    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> None:
        async def branch(n: int) -> None:
            await asyncio.sleep(0.01 * (n if ctx.attempt == 1 else 3 - n))
            await ctx.options(key=str(n)).usage(tokens=10**n)
            await ctx.options(key=str(n)).emit("asked", {"n": n})

        await asyncio.gather(*(branch(n) for n in range(3)))
        if ctx.attempt == 1:
            raise OSError("replay, please")

    async with working(app):
        handle = await app.enqueue(agent)
        await handle.result(PATIENCE)
    assert (await state_of(app, handle)).tokens == 111
    assert sorted(e.payload["n"] for e in await handle.events() if e.type == "asked") == [0, 1, 2]


async def test_a_fork_counts_what_it_does_itself(app: App) -> None:
    @app.job
    async def agent(ctx: JobContext) -> None:
        await ctx.usage(tokens=1, cost="0.1")
        await ctx.emit("asked", {"n": 1})
        await ctx.step("one", int)
        await ctx.usage(tokens=20, cost="0.02")
        await ctx.emit("asked", {"n": 2})
        await ctx.step("two", int)
        await ctx.emit("asked", {"n": 3})

    async with working(app):
        first = await app.enqueue(agent)
        await first.result(PATIENCE)
        fork = await app.jobs.fork(first.id, from_step="two")
        await ended(app, fork)
        again = await app.jobs.fork(fork.id, from_step="two")
        await ended(app, again)
        early = await app.jobs.fork(first.id, from_step="one")
        await ended(app, early)
    for job in (fork, again):
        state = await state_of(app, job)
        assert (state.tokens, state.cost) == (0, Decimal(0))
        assert [e.payload for e in await job.events() if e.type == "asked"] == [{"n": 3}]
    state = await state_of(app, early)
    assert (state.tokens, state.cost) == (20, Decimal("0.02"))
    assert [e.payload for e in await early.events() if e.type == "asked"] == [{"n": 2}, {"n": 3}]


async def test_progress_does_not_go_back_while_an_attempt_replays(app: App) -> None:
    seen: list[float | None] = []

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> None:
        await ctx.progress(0.1, "begin")
        await ctx.step("one", int)
        await ctx.progress(0.5, "half")
        if ctx.attempt == 1:
            raise OSError("replay, please")
        seen.append((await app.jobs.get(ctx.job_id)).state.progress)
        await ctx.progress(0.3, "it turned out to be more")

    async with working(app, linger=0.0):
        handle = await app.enqueue(agent)
        await handle.result(PATIENCE)
        assert seen == [0.5]
        assert (await state_of(app, handle)).progress == 0.3


async def test_costs_are_exact(app: App) -> None:
    @app.job
    async def agent(ctx: JobContext) -> None:
        for _ in range(10):
            await ctx.usage(cost=0.1)
        await ctx.usage(cost=Decimal("1E+3"))
        await ctx.usage(cost="0.000000000000000000000000000001")
        await ctx.usage(cost=10**15)
        await ctx.usage(cost=-0.0)

    async with working(app):
        handle = await app.enqueue(agent)
        await handle.result(PATIENCE)
    assert (await state_of(app, handle)).cost == Decimal("1000000000001001.000000000000000000000000000001")
