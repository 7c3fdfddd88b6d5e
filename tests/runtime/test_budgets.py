"""Budgets: what a job may use, counted in the log, asked for when it is used up."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from perdure import App, Backoff, BlockingContext, Budget, BudgetExceeded, InvalidBudget, JobContext, Status
from perdure.model.budgets import use_of
from perdure.testing import TestApp
from tests.runtime.support import NOW, PATIENCE, ended, keys, pending, types, working


async def test_a_job_asks_for_more_when_its_tokens_are_used_up_and_goes_on_with_it(app: App) -> None:
    asked: list[int] = []

    @app.job
    async def agent(ctx: JobContext) -> int:
        async def ask(n: int) -> int:
            asked.append(n)
            await ctx.usage(tokens=40)
            return n

        for n in range(4):
            await ctx.step("ask", ask, n)
        assert ctx.budget_left is not None
        return int(ctx.budget_left["tokens"])

    handle = await app.enqueue(agent, budget=Budget(tokens=100))
    async with working(app, linger=0.0):
        approval = await pending(app, handle)
        assert asked == [0, 1, 2]
        assert approval.payload == {"thing": "tokens", "goal": None, "extend": {"tokens": 100}}
        assert "the budget of 100 tokens is used up: 120 tokens spent" in approval.title
        explained = await app.jobs.explain(handle.id)
        assert "0 of 100 tokens" in explained.sentence
        assert explained.details["budget"]["tokens"] == {"limit": 100, "spent": 120, "reserved": 0, "left": 0}
        await app.approvals.approve(approval.id, edited={"extend": {"tokens": 50}})
        assert await handle.result(PATIENCE) == 0
    assert asked == [0, 1, 2, 3]
    events = await handle.events()
    [given] = [e.payload for e in events if e.type == "budget_extended"]
    assert (given["key"], given["tokens"]) == ("budget[#1]", 50)
    warned = [e.payload for e in events if e.type == "budget_warned"]
    assert warned == [
        {"thing": "tokens", "spent": 80, "limit": 100},
        {"thing": "tokens", "spent": 160, "limit": 150},
    ]


async def test_a_person_who_allows_no_more_fails_the_job(app: App) -> None:
    @app.job(budget=Budget(tool_calls=1))
    async def agent(ctx: JobContext) -> None:
        for _ in range(2):
            await ctx.tool("post", lambda: None)

    handle = await app.enqueue(agent)
    async with working(app):
        approval = await pending(app, handle)
        await app.approvals.deny(approval.id, comment="enough")
        job = await ended(app, handle)
    assert (job.status, job.error_kind) == (Status.FAILED, "budget")
    assert "the budget of 1 tool calls is used up" in str(job.error_message)
    assert types(await handle.events()).count("tool_called") == 1


async def test_a_handler_may_end_with_what_it_has(app: App) -> None:
    @app.job
    def agent(ctx: BlockingContext) -> str:
        done = 0
        try:
            while True:
                ctx.step("ask", lambda: None)
                ctx.usage(cost="0.4")
                done += 1
        except BudgetExceeded as error:
            return f"{done} of them: {error.thing}"

    handle = await app.enqueue(agent, budget=Budget(cost="1.00", on_breach="fail"))
    async with working(app):
        assert await handle.result(PATIENCE) == "3 of them: cost"
    assert (await handle.get()).state.cost == Decimal("1.2")


async def test_parallel_calls_never_use_more_than_there_is_if_they_say_what_they_need(app: App) -> None:
    spent = [0]
    most = [0]

    @app.job
    async def agent(ctx: JobContext) -> None:
        async def ask() -> None:
            await asyncio.sleep(0.01)
            spent[0] += 30
            most[0] = max(most[0], spent[0])
            await ctx.usage(tokens=30)

        async def one(n: int) -> None:
            await ctx.options(tokens=30, key=str(n)).step("ask", ask)

        done = await asyncio.gather(*(one(n) for n in range(8)), return_exceptions=True)
        refused = [str(error) for error in done if isinstance(error, BudgetExceeded)]
        assert {*refused} == {"the budget of 100 tokens is too small for a call that needs 30 tokens: 90 tokens spent"}
        assert len(refused) == 5

    handle = await app.enqueue(agent, budget=Budget(tokens=100, on_breach="fail"))
    async with working(app):
        await handle.result(PATIENCE)
    assert most == [90]
    use = use_of(await handle.events())
    assert (use.spent.tokens, use.reservations) == (90, {})


async def test_a_call_waits_for_what_parallel_calls_have_set_aside(app: App) -> None:
    """They use less than they have set aside, so all of them fit."""

    @app.job
    async def agent(ctx: JobContext) -> None:
        async def ask() -> None:
            await asyncio.sleep(0.01)
            await ctx.usage(tokens=10)

        async def one(n: int) -> None:
            await ctx.options(tokens=60, key=str(n)).step("ask", ask)

        await asyncio.gather(*(one(n) for n in range(5)))

    handle = await app.enqueue(agent, budget=Budget(tokens=100, on_breach="fail"))
    async with working(app):
        await handle.result(PATIENCE)
    assert (await handle.get()).state.tokens == 50


async def test_a_call_that_a_crash_cut_off_keeps_what_it_had_set_aside() -> None:
    async with TestApp(lease="30s") as app:

        @app.job(backoff=NOW)
        async def agent(ctx: JobContext) -> str:
            async def ask() -> None:
                await ctx.usage(tokens=5)
                if ctx.attempt == 1:
                    await asyncio.Event().wait()

            try:
                await ctx.options(tokens=60, timeout=None).step("ask", ask)
            except BudgetExceeded:
                return "nothing is left for a second call"
            return "called twice"

        handle = await app.enqueue(agent, budget=Budget(tokens=100, on_breach="fail"))
        task = asyncio.create_task(app.work())
        while "budget_reserved" not in types(await handle.events()):
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await handle.result(PATIENCE) == "nothing is left for a second call"
        use = use_of(await handle.events())
        assert (use.spent.tokens, use.reserved.tokens, use.left()["tokens"]) == (5, 55, 40)


async def test_a_step_that_raises_frees_what_it_had_set_aside(app: App) -> None:
    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> None:
        def ask() -> None:
            if ctx.attempt < 3:
                raise OSError("busy")

        await ctx.options(tokens=90, retries=1, backoff=NOW).step("ask", ask)

    handle = await app.enqueue(agent, budget=Budget(tokens=100, on_breach="fail"))
    async with working(app):
        await handle.result(PATIENCE)
    use = use_of(await handle.events())
    assert (use.reservations, len(keys(await handle.events(), "budget_reserved"))) == ({}, 5)


async def test_time_counts_while_the_job_runs_and_not_while_it_waits(timed_app: TestApp) -> None:
    app = timed_app

    @app.job
    async def agent(ctx: JobContext) -> dict[str, Any]:
        await ctx.sleep("rest", "1h")
        assert ctx.budget_left is not None
        await ctx.step("look", lambda: None)
        return dict(ctx.budget_left)

    handle = await app.enqueue(agent, budget=Budget(wall_time="10m", on_breach="fail"))
    assert (await handle.result("2h"))["wall_time"] > 590


async def test_more_repeats_of_a_tool_than_the_budget_has_are_not_made(app: App) -> None:
    @app.job(max_retries=0)
    async def agent(ctx: JobContext) -> None:
        def post() -> None:
            raise ValueError("no")

        await ctx.options(retries=9, backoff=Backoff(base=0, cap=0)).tool("post", post)

    handle = await app.enqueue(agent, budget=Budget(tool_calls=3))
    async with working(app):
        assert (await ended(app, handle)).status is Status.DEADLETTER
    assert types(await handle.events()).count("tool_called") == 3


async def test_a_job_that_runs_again_has_the_same_budget_and_has_used_nothing_of_it(app: App) -> None:
    @app.job
    async def agent(ctx: JobContext) -> dict[str, Any]:
        await ctx.step("look", lambda: None)
        await ctx.usage(tokens=10)
        assert ctx.budget_left is not None
        return dict(ctx.budget_left)

    async with working(app):
        first = await app.enqueue(agent, budget=Budget(tokens=100))
        assert await first.result(PATIENCE) == {"tokens": 90}
        assert await (await app.jobs.rerun(first.id)).result(PATIENCE) == {"tokens": 90}
        assert await (await app.jobs.fork(first.id)).result(PATIENCE) == {"tokens": 100}


async def test_a_job_without_a_budget_writes_nothing_more(app: App) -> None:
    @app.job
    async def agent(ctx: JobContext) -> None:
        assert ctx.budget_left is None
        await ctx.options(tokens=5).step("look", lambda: None)
        await ctx.usage(tokens=10)

    handle = await app.enqueue(agent)
    async with working(app):
        await handle.result(PATIENCE)
    assert types(await handle.events()) == [
        "job_created", "run_started", "node_finished", "usage_recorded", "job_completed"
    ]  # fmt: skip


WRONG: list[dict[str, Any]] = [
    {"tokens": -1},
    {"tokens": 1.5},
    {"cost": "-1"},
    {"cost": "much"},
    {"wall_time": "soon"},
    {"on_breach": "wait"},
    {"warn_at": 2},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_budget_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidBudget):
        Budget(**wrong)


async def test_what_is_no_budget_stores_nothing(app: App) -> None:
    no_budget: Any = 100
    with pytest.raises(InvalidBudget):
        await app.enqueue("agent", budget=no_budget, elsewhere=True)
    assert not (await app.jobs.list()).items


async def test_children_stay_within_the_budget_of_their_parent(app: App) -> None:
    @app.job
    async def child(ctx: JobContext, tokens: int) -> int:
        await ctx.usage(tokens=tokens)
        assert ctx.budget_left is not None
        return int(ctx.budget_left["tokens"])

    @app.job
    async def parent(ctx: JobContext) -> list[Any]:
        first = await ctx.spawn(child, 10)  # half of 100
        second = await ctx.spawn(child, 5, budget=Budget(tokens=20))
        # in steps: a replay of these lines would see what is left later on
        assert await ctx.step("spawned", lambda: ctx.budget_left) == {"tokens": 30, "children": 1}
        left = await ctx.gather(first, second)
        assert await ctx.step("gathered", lambda: ctx.budget_left) == {"tokens": 85, "children": 1}
        return [*left, await ctx.wait_for(await ctx.spawn(child, 0)), dict(ctx.budget_left or {})]

    handle = await app.enqueue(parent, budget=Budget(tokens=100, children=3, on_breach="fail"))
    async with working(app, linger=0.0):
        assert await handle.result(PATIENCE) == [40, 15, 42, {"tokens": 85, "children": 0}]
    assert use_of(await handle.events()).reservations == {}


async def test_a_child_that_does_not_fit_is_not_spawned(app: App) -> None:
    @app.job
    async def child(ctx: JobContext) -> None: ...

    @app.job
    async def parent(ctx: JobContext) -> list[str]:
        found = []
        for budget in (Budget(tokens=101), Budget(tokens=10), Budget(tokens=10)):
            try:
                await ctx.spawn(child, budget=budget)
            except BudgetExceeded as error:
                found.append(error.thing)
        return found

    handle = await app.enqueue(parent, budget=Budget(tokens=100, children=1, on_breach="fail"))
    async with working(app):
        assert await handle.result(PATIENCE) == ["tokens", "children"]
    assert len(keys(await handle.events(), "child_spawned")) == 1
