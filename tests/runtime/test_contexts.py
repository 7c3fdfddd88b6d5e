"""app.contexts: the contexts of the jobs that run in this process; bounded, and gone with the attempt."""

import asyncio
import gc
from typing import Any

from perdure import App, BlockingContext, JobContext, Status
from perdure.model.ids import uuid7
from tests.runtime.support import NOW, PATIENCE, ended, reached, until, working


async def test_it_has_what_runs_here_and_says_how_far_the_rest_is(app: App) -> None:
    go, contexts = asyncio.Event(), dict[Any, JobContext]()

    @app.job
    async def agent(ctx: JobContext, name: str) -> str:
        contexts[ctx.job_id] = ctx
        await ctx.messages.append("user", name)
        await ctx.vars.set("name", name)
        await ctx.tool("greet", str.upper, name)
        await go.wait()
        return name

    assert (app.contexts.max_jobs, app.contexts.list()) == (0, [])
    async with working(app, concurrency=2, lease=60):
        handles = [await app.enqueue(agent, str(i)) for i in range(5)]
        await until(lambda: len(app.contexts) == 2 and len(contexts) == 2)
        first, second = app.contexts.list()
        assert app.contexts.max_jobs == 2
        assert app.contexts.get(first) is contexts[first]
        assert first in app.contexts

        async def all_written() -> bool:
            return all([[a.success for a in await app.jobs.actions(id)] == [True] for id in (first, second)])

        await until(all_written)
        await until(lambda: not any(ctx.tool_stack for ctx in contexts.values()))
        snapshot = await app.contexts.snapshot(first)
        assert snapshot is not None
        name = snapshot["variables"]["name"]
        assert snapshot["messages"] == [{"role": "user", "content": name}]
        assert snapshot["tool_stack"] == []
        assert (snapshot["context"]["job_id"], snapshot["context"]["state"]) == (str(first), "RUNNING")
        memory = await app.contexts.memory(first)
        assert memory is not None
        assert [m.message["content"] for m in memory.conversation] == [name]
        assert ([a.output for a in memory.actions], memory.next_sequence) == ([name], 1)

        waiting = [handle.id for handle in handles if handle.id not in (first, second)]
        assert [await app.contexts.position(id) for id in (first, second)] == [0, 0]
        assert [await app.contexts.position(id) for id in waiting] == [1, 2, 3]
        assert [app.contexts.get(id) for id in waiting] == [None] * 3
        assert await app.contexts.snapshot(waiting[0]) is None
        assert await app.contexts.memory(waiting[0]) is None
        go.set()
        assert [await handle.result(PATIENCE) for handle in handles] == list("01234")
        await until(lambda: not app.contexts.list())
        assert await app.contexts.position(first) is None
    assert {(await handle.get()).attempt for handle in handles} == {1}, "none lost its lease for want of a slot"
    assert app.contexts.get(uuid7()) is None


async def test_a_parked_job_has_no_context_until_it_is_woken(app: App) -> None:
    seen: list[Any] = []

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> None:
        await ctx.messages.append("user", "hello")
        await ctx.wait_signal("go")
        snapshot = await app.contexts.snapshot(ctx.job_id)
        assert snapshot is not None
        seen.append((snapshot["messages"], app.contexts.get(ctx.job_id) is ctx))

        async def look(q: str) -> list[Any]:
            inside = await app.contexts.snapshot(ctx.job_id)
            assert inside is not None
            return [[call["name"], call["arguments"]] for call in inside["tool_stack"]]

        assert await ctx.tool("look", look, "tea") == [["look", {"q": "tea"}]]

    handle = await app.enqueue(agent)
    async with working(app):
        await reached(handle, Status.PARKED)
        await until(lambda: app.contexts.get(handle.id) is None)
        await app.signal(handle, "go")
        assert (await ended(app, handle)).status is Status.COMPLETED
    assert seen == [([{"role": "user", "content": "hello"}], True)]


async def test_no_end_leaves_a_context_behind(app: App) -> None:
    @app.job(max_retries=1, backoff=NOW)
    async def agent(ctx: JobContext, how: int) -> None:
        await ctx.messages.append("user", "hello")
        if how == 1:
            raise OSError("fails")
        if how == 2:
            await ctx.wait_signal("never")

    @app.job
    def plain(ctx: BlockingContext, how: int) -> None:
        ctx.vars.set("how", how)

    def alive() -> int:
        gc.collect()
        return sum(isinstance(thing, JobContext) for thing in gc.get_objects())

    before = alive()
    async with working(app):
        handles = [await app.enqueue(agent, i % 3) for i in range(60)]
        handles += [await app.enqueue(plain, i) for i in range(20)]
        for number, handle in enumerate(handles):
            await reached(handle, Status.COMPLETED, Status.DEADLETTER, Status.PARKED)
            if number % 3 == 2 and number < 60:
                await app.jobs.cancel(handle.id)
        await until(lambda: not app.contexts.list())
        await until(
            lambda: alive() - before <= 10, what="the contexts to be gone, but for those that timers of drivers hold"
        )
