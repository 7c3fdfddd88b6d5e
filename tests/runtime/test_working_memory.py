"""ctx.messages, ctx.vars and ctx.actions: durable, once, and the same at each line of a replay."""

from decimal import Decimal
from typing import Any

import pytest

from perdure import App, BlockingContext, InvalidInput, JobContext, JobNotFound, NotJson, Status
from tests.conformance.support import passed
from tests.runtime.support import NOW, PATIENCE, ended, types, working

CALL = {"id": "c1", "name": "search", "arguments": {"q": "tea"}}


async def test_a_retry_meets_the_conversation_as_it_was_at_each_line(app: App) -> None:
    asked: list[list[dict[str, Any]]] = []

    async def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
        asked.append(messages)
        return {"role": "assistant", "content": f"answer {len(messages)}"}

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext, task: str) -> list[Any]:
        before = ctx.messages.list()
        left = ctx.messages.recorded()
        await ctx.messages.append("user", f"{task} in attempt {ctx.attempt}")
        for _ in range(2):
            reply = await ctx.step("ask", model, ctx.messages.list())
            await ctx.messages.append(**reply)
            await ctx.vars.set("turns", ctx.vars.get("turns", 0) + 1)
        if ctx.attempt == 1:
            raise OSError("once more")
        return [before, left, list(ctx.messages), ctx.vars.all(), "turns" in ctx.vars]

    handle = await app.enqueue(agent, "find tea")
    async with working(app):
        before, left, messages, variables, has_turns = await handle.result(PATIENCE)
    said = [
        {"role": "user", "content": "find tea in attempt 1"},
        {"role": "assistant", "content": "answer 1"},
        {"role": "assistant", "content": "answer 2"},
    ]
    assert (before, left, messages) == ([], said, said)
    assert (variables, has_turns) == ({"turns": 2}, True)
    assert asked == [said[:1], said[:2]], "the second attempt asks nothing"
    found = await app.jobs.messages(handle.id)
    assert [(m.sequence, m.message, m.attempt, m.step) for m in found] == [(i, m, 1, None) for i, m in enumerate(said)]
    assert await app.jobs.variables(handle.id) == {"turns": 2}


async def test_what_a_step_appends_commits_with_its_record_and_not_if_it_fails(app: App) -> None:
    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> list[Any]:
        async def turn() -> int:
            await ctx.messages.append("user", "again?")
            await ctx.vars.set("asked", True)
            number = len(ctx.messages)
            if ctx.attempt == 1:
                raise OSError("the model is down")
            return number

        async def outer() -> str:
            await ctx.step("inner", turn)
            return "done"

        await ctx.messages.append("system", "be short")
        await ctx.step("outer", outer)
        seen = ctx.messages.list(), ctx.vars.all()
        if ctx.attempt < 3:
            raise OSError("after it")
        return [*seen, ctx.messages.recorded()]

    handle = await app.enqueue(agent)
    async with working(app):
        seen, variables, recorded = await handle.result(PATIENCE)
    said = [{"role": "system", "content": "be short"}, {"role": "user", "content": "again?"}]
    assert (seen, recorded, variables) == (said, said, {"asked": True})
    found = await app.jobs.messages(handle.id)
    assert [(m.message, m.step, m.attempt) for m in found] == [(said[0], None, 1), (said[1], "inner", 2)]
    log = await handle.events()
    [done] = [e.version for e in log if e.type == "node_finished" and e.payload["key"] == "inner"]
    assert log[done].type == "message_appended", "in the same write"


async def test_a_fork_has_the_conversation_up_to_its_step(app: App) -> None:
    @app.job
    async def agent(ctx: JobContext) -> list[Any]:
        for name in ("a", "b"):
            await ctx.messages.append("user", name)
            await ctx.step(name, str, name)
        return ctx.messages.list()

    handle = await app.enqueue(agent)
    async with working(app):
        said = await handle.result(PATIENCE)
        fork = await app.jobs.fork(handle.id, from_step="b")
        assert await fork.result(PATIENCE) == said
    assert len(await app.jobs.messages(fork.id)) == 2


async def test_actions_are_the_calls_of_tools_with_what_they_cost(app: App) -> None:
    async def post(url: str, password: str) -> dict[str, str]:
        if len(seen) < 2:
            seen.append(url)
            await context[0].usage(tokens=5, cost="0.01")
            raise ValueError("refused")
        await context[0].usage(tokens=7, cost="0.02")
        return {"token": "abc", "text": "key sk-123456789abc here", "id": "1"}

    seen: list[str] = []
    context: list[JobContext] = []

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> list[Any]:
        context[:] = [ctx]
        out = await ctx.options(retries=1).tool("post", post, "https://ann:pw@x.org", password="secret")
        await ctx.usage(tokens=100)
        await ctx.options(key="k").tool("post", str, 3)
        if ctx.attempt == 2:
            raise OSError("after it")
        return [out, len(await ctx.actions())]

    handle = await app.enqueue(agent)
    async with working(app):
        assert (await handle.result(PATIENCE))[1] == 4
    found = await app.jobs.actions(handle.id)
    assert [(a.sequence, a.key, a.tool, a.success, a.attempt) for a in found] == [
        (0, "post", "post", False, 1),
        (1, "post", "post", False, 1),
        (2, "post", "post", True, 2),
        (3, "post[k]", "post", True, 2),
    ]
    assert [(a.tokens, a.cost) for a in found] == [
        (5, Decimal("0.01")),
        (5, Decimal("0.01")),
        (7, Decimal("0.02")),
        (0, 0),
    ]
    assert found[2].input == {"url": "https://ann:***@x.org", "password": "[redacted]"}
    assert found[2].output == {"token": "abc", "text": "key sk-123456789abc here", "id": "1"}
    assert found[2].sanitised_output == {"token": "[redacted]", "text": "key [redacted] here", "id": "1"}
    assert found[1].error is not None
    assert "refused" in found[1].error
    assert all(a.seconds is not None and a.seconds >= 0 for a in found)
    assert found[2].idempotency_key == found[0].idempotency_key != found[3].idempotency_key


async def test_plain_handlers_have_it_too(app: App) -> None:
    @app.job
    def agent(ctx: BlockingContext) -> list[Any]:
        ctx.messages.append("user", "hello")
        ctx.messages.append("assistant", tool_calls=[CALL])
        ctx.vars.set("a", [1])
        ctx.tool("post", str, 1)
        return [ctx.messages.fit(1000).messages, len(ctx.messages), ctx.vars["a"], [a.tool for a in ctx.actions()]]

    handle = await app.enqueue(agent)
    async with working(app):
        said = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
        assert await handle.result(PATIENCE) == [said, 2, [1], ["post"]]


async def test_bad_messages_and_names_are_refused_and_nothing_is_written(app: App) -> None:
    @app.job
    async def agent(ctx: JobContext) -> None:
        with pytest.raises(InvalidInput, match="role"):
            await ctx.messages.append("")
        with pytest.raises(NotJson):
            await ctx.messages.append("user", object())
        with pytest.raises(InvalidInput):
            await ctx.vars.set("", 1)
        with pytest.raises(InvalidInput, match="budget of tokens"):
            ctx.messages.fit(0)

    handle = await app.enqueue(agent)
    async with working(app):
        assert (await ended(app, handle)).status is Status.COMPLETED
    assert types(await handle.events()) == ["job_created", "run_started", "job_completed"]


async def test_a_prune_keeps_what_a_delete_by_hand_does_not(app: App) -> None:
    @app.job
    async def agent(ctx: JobContext) -> None:
        await ctx.messages.append("user", "hello")
        await ctx.vars.set("a", 1)
        await ctx.tool("post", str, 1)

    @app.job
    async def plain(ctx: JobContext) -> None:
        await ctx.usage(tokens=1)

    kept, deleted = await app.enqueue(agent), await app.enqueue(agent)
    other = await app.enqueue(plain)
    async with working(app):
        for handle in (kept, deleted, other):
            await handle.result(PATIENCE)

    async def memory(id: Any) -> Any:
        return await app.jobs.messages(id), await app.jobs.variables(id), await app.jobs.actions(id)

    before = await memory(kept.id)
    await app.jobs.delete(deleted.id)
    store = await app.open()
    await passed(store, (await kept.get()).finished_at)
    assert await app.database.prune(older_than=0) == 2
    with pytest.raises(JobNotFound):
        await kept.get()
    assert await memory(kept.id) == before
    assert [len(part) for part in before] == [1, 1, 1]
    for gone in (deleted, other):
        with pytest.raises(JobNotFound):
            await app.jobs.messages(gone.id)
    assert await store.retention.list_pruned_memory(other.id, types=["usage_recorded"]) == []
