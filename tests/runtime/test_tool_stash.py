"""The outputs of tools by the id of their call, references to them, and the state that tools share: also after a crash."""

from typing import Any

import pytest

from perdure import App, BlockingContext, InvalidInput, JobContext, Retry, current_context
from perdure.runtime.context import tool_stash
from tests.runtime.support import NOW, PATIENCE, pending, types, working


def read(path: str) -> dict[str, Any]:
    return {"path": path, "lines": ["one", "two"]}


async def test_a_reference_stands_for_the_complete_output(app: App) -> None:
    @app.job
    async def agent(ctx: JobContext) -> list[Any]:
        await ctx.options(tool_call_id="call_1").tool("read", read, "a.txt")
        seen: list[Any] = []
        await ctx.tool("look", seen.append, {"file": "$call_1", "all": ["$call_1", "$5", "$call_2", "costs $call_1"]})
        assert ctx.tool_output_stash.ids == ("call_1",)
        return [*seen, await ctx.tool_output_stash.output("call_1")]

    handle = await app.enqueue(agent)
    async with working(app):
        whole = {"path": "a.txt", "lines": ["one", "two"]}
        assert await handle.result(PATIENCE) == [
            {"file": whole, "all": [whole, "$5", "$call_2", "costs $call_1"]},
            whole,
        ]


async def test_a_later_attempt_has_the_outputs_and_the_state_again(app: App) -> None:
    called: list[str] = []

    def find(name: str) -> str:
        called.append("find")
        current_context().tool_output_stash.state["__last"] = {"name": name}
        return name * 2

    def use(text: str) -> Any:
        called.append("use")
        return [text, current_context().tool_output_stash.state["__last"]]

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> Any:
        await ctx.options(tool_call_id="call_1").tool("find", find, "ab")
        assert ctx.tool_output_stash.state["__last"] == {"name": "ab"}
        if ctx.attempt == 1:
            raise Retry("once more", after=0)
        return await ctx.tool("use", use, "$call_1")

    handle = await app.enqueue(agent)
    async with working(app):
        assert await handle.result(PATIENCE) == ["abab", {"name": "ab"}]
    assert called == ["find", "use"]


async def test_a_plain_handler_and_a_call_inside_a_step_have_them_too(app: App) -> None:
    @app.job(backoff=NOW)
    def agent(ctx: BlockingContext) -> Any:
        def inner() -> str:
            ctx.options(tool_call_id="call_1").tool("read", read, "a.txt")
            ctx.tool_output_stash.state["__n"] = 1
            return "done"

        ctx.step("outer", inner)
        if ctx.attempt == 1:
            raise Retry("once more", after=0)
        assert dict(ctx.tool_output_stash.state) == {"__n": 1}
        return ctx.tool_output_stash.output("call_1")["path"]

    handle = await app.enqueue(agent)
    async with working(app):
        assert await handle.result(PATIENCE) == "a.txt"


async def test_a_large_output_is_a_file_of_the_job_and_the_log_stays_small(app: App) -> None:
    size = 2 * 1024 * 1024
    seen: list[int] = []

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> int:
        text = await ctx.options(tool_call_id="big").tool("read", lambda: "x" * size)
        if ctx.attempt == 1:
            raise Retry("once more", after=0)
        await ctx.tool("count", lambda text: seen.append(len(text)), "$big")
        return len(text)

    handle = await app.enqueue(agent)
    async with working(app):
        assert await handle.result(PATIENCE) == size
        assert seen == [size]
        fork = await app.jobs.fork(handle.id, "count")
        assert await fork.result(PATIENCE) == size
    assert seen == [size, size]
    [returned] = [e for e in await handle.events() if e.type == "tool_returned" and e.payload["key"] == "read"]
    assert (returned.payload["result"], returned.payload["stored"]["size"]) == (None, size + 2)


async def test_outputs_beyond_what_memory_holds_are_files(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_stash, "MOST_IN_MEMORY", 100)

    @app.job
    async def agent(ctx: JobContext) -> list[str]:
        for n in range(3):
            await ctx.options(tool_call_id=f"call_{n}").tool("read", "0".__add__, str(n) * 60)
        return [(await ctx.tool_output_stash.output(f"call_{n}"))[:2] for n in range(3)]

    handle = await app.enqueue(agent)
    async with working(app):
        assert await handle.result(PATIENCE) == ["00", "01", "02"]
    stored = ["stored" in e.payload for e in await handle.events() if e.type == "tool_returned"]
    assert stored == [False, True, True]


async def test_what_a_failed_call_set_does_not_count_and_no_reference_reaches_the_state(app: App) -> None:
    def fails() -> None:
        state = current_context().tool_output_stash.state
        state["__x"] = 1
        assert state["__x"] == 1
        raise ValueError("no")

    @app.job
    async def agent(ctx: JobContext) -> Any:
        with pytest.raises(ValueError, match="no"):
            await ctx.tool("fails", fails)
        state = ctx.tool_output_stash.state
        assert "__x" not in state
        state["__y"] = 2
        with pytest.raises(InvalidInput):
            state["y"] = 3
        with pytest.raises(InvalidInput):
            ctx.options(tool_call_id="__y")
        return await ctx.options(tool_call_id="call").tool("echo", lambda text: text, "$__y")

    handle = await app.enqueue(agent)
    async with working(app):
        assert await handle.result(PATIENCE) == "$__y"


async def test_the_stack_has_the_calls_that_run(app: App) -> None:
    def show() -> list[Any]:
        return [(call.name, call.tool_call_id, dict(call.arguments)) for call in current_context().tool_stack]

    @app.job
    async def agent(ctx: JobContext) -> list[Any]:
        async def outer(path: str) -> list[Any]:
            return await ctx.options(tool_call_id="call_2").tool("inner", show)

        seen: list[Any] = await ctx.tool("outer", outer, "a.txt")
        assert ctx.tool_stack == ()
        return seen

    handle = await app.enqueue(agent)
    async with working(app):
        assert await handle.result(PATIENCE) == [["outer", None, {"path": "a.txt"}], ["inner", "call_2", {}]]


async def test_a_job_without_ids_writes_what_it_always_wrote(app: App) -> None:
    @app.job
    async def plain(ctx: JobContext) -> Any:
        return await ctx.tool("echo", lambda text: text, "$call_1")

    handle = await app.enqueue(plain)
    async with working(app):
        assert await handle.result(PATIENCE) == "$call_1"
    events = await handle.events()
    assert types(events) == ["job_created", "run_started", "tool_called", "tool_returned", "job_completed"]
    assert set(events[3].payload) == {"key", "digest", "result"}


async def test_an_output_that_a_person_gave_is_in_the_stash_too(app: App) -> None:
    def post() -> str:
        raise ConnectionResetError("the answer was lost")

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> Any:
        await ctx.options(tool_call_id="call_1").tool("post", post)
        return await ctx.tool("echo", lambda text: text, ["$call_1"])

    handle = await app.enqueue(agent)
    async with working(app, linger=0.0):
        question = await pending(app, handle)
        await app.approvals.approve(question.id, edited={"outcome": "happened", "result": "order 42"})
        assert await handle.result(PATIENCE) == ["order 42"]
