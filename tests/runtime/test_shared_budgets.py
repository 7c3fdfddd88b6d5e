"""Budgets of agents and tenants: what all their jobs may use together, in all workers."""

import asyncio
import random
from decimal import Decimal
from typing import Any

import pytest

from perdure import App, Budget, BudgetExceeded, InvalidBudget, JobContext, Request, Status, Stuck
from perdure.runtime.client.enqueue import EnqueueOptions
from perdure.testing import TestApp
from tests.runtime.support import NOW, PATIENCE, ended, pending, types, working


async def test_the_jobs_of_an_agent_share_its_budget_and_ask_for_more(app: App) -> None:
    @app.job
    async def assistant(ctx: JobContext) -> None:
        async def ask() -> None:
            await ctx.usage(tokens=40, cost="0.1")

        await ctx.options(tokens=40).step("ask", ask)

    await app.agents.create("a7", kind="assistant")
    await app.limits.set_budget(Budget(tokens=100), agent="a7")
    handles = [await app.enqueue(assistant, agent="a7") for _ in range(3)]
    other = await app.enqueue(assistant)
    async with working(app, linger=0.0):
        await other.result(PATIENCE)
        for handle in handles[:2]:
            await handle.result(PATIENCE)
        approval = await pending(app, handles[2])
        assert "the budget of agent 'a7' of 100 tokens is used up: 80 tokens spent. Allow more?" in approval.title
        explained = await app.jobs.explain(handles[2].id)
        assert "agent 'a7': 20 tokens of 100 tokens left" in explained.sentence
        await app.approvals.approve(approval.id, edited={"extend": {"tokens": 50}})
        await handles[2].result(PATIENCE)
    budget = await app.limits.budget(agent="a7")
    assert budget is not None
    assert (budget.limits, budget.spent["tokens"], budget.held["tokens"]) == ({"tokens": 150}, 120, 0)
    assert budget.left == {"tokens": 30}
    warned = [e.payload for h in handles for e in await h.events() if e.type == "budget_warned"]
    assert ("agent:a7", "tokens", 100) in [(w["scope"], w["thing"], w["limit"]) for w in warned]


async def test_a_tenant_whose_budget_says_so_fails_what_does_not_fit(app: App) -> None:
    await app.limits.set_budget(Budget(tool_calls=2, cost="1.00", on_breach="fail"))

    @app.job(max_retries=0)
    async def agent(ctx: JobContext) -> None:
        for _ in range(3):
            await ctx.tool("post", lambda: None)

    handle = await app.enqueue(agent)
    async with working(app):
        job = await ended(app, handle)
    assert (job.status, job.error_kind) == (Status.FAILED, "budget")
    assert "the budget of the tenant of 2 tool calls is used up" in str(job.error_message)
    assert types(await handle.events()).count("tool_called") == 2
    assert await app.limits.unset_budget()
    assert await app.limits.budgets() == []


async def test_one_answer_is_enough_where_many_jobs_have_asked(app: App) -> None:
    """Each of them has an approval of its own; only the first that is approved gives more."""
    await app.limits.set_budget(Budget(tokens=10))

    @app.job
    async def agent(ctx: JobContext, n: int) -> None:
        async def ask() -> None:
            await ctx.usage(tokens=10)

        await ctx.options(tokens=10).step("ask", ask)

    first = await app.enqueue(agent, 0)
    async with working(app, linger=0.0):
        await first.result(PATIENCE)
        handles = [await app.enqueue(agent, n) for n in range(3)]
        approvals = [await pending(app, handle) for handle in handles]
        for approval in approvals:
            await app.approvals.approve(approval.id, edited={"extend": {"tokens": 30}})
        for handle in handles:
            await handle.result(PATIENCE)
    budget = await app.limits.budget()
    assert budget is not None
    assert (budget.limits["tokens"], budget.spent["tokens"], budget.held["tokens"]) == (40, 40, 0)


async def test_what_a_child_uses_counts_for_the_agent_of_its_parent(app: App) -> None:
    @app.job
    async def child(ctx: JobContext) -> None:
        await ctx.usage(tokens=7)

    @app.job
    async def parent(ctx: JobContext) -> None:
        await ctx.wait_for(await ctx.spawn("child"))

    await app.agents.create("boss", kind="parent")
    await app.limits.set_budget(Budget(tokens=100, children=5), agent="boss")
    handle = await app.enqueue(parent, agent="boss")
    async with working(app, linger=0.0):
        await handle.result(PATIENCE)
    budget = await app.limits.budget(agent="boss")
    assert budget is not None
    assert (budget.spent["tokens"], budget.spent["children"]) == (7, 1)


async def test_a_job_without_any_budget_neither_reads_nor_writes_one(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.job
    async def agent(ctx: JobContext) -> None:
        await ctx.step("go", lambda: None)
        await ctx.usage(tokens=5)

    await app.agents.create("idle", kind="agent")
    await app.limits.set_budget(Budget(tokens=1), agent="another")
    store = await app.open()

    async def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("it asked")

    monkeypatch.setattr(store.limits, "reserve_budget", refuse)
    handle = await app.enqueue(agent, agent="idle")
    async with working(app):
        await handle.result(PATIENCE)
    assert "budget" not in " ".join(types(await handle.events()))


@pytest.mark.parametrize("budget", [Budget(), Budget(wall_time="1h", tokens=5)])
async def test_what_cannot_be_shared_is_refused(timed_app: TestApp, budget: Budget) -> None:
    with pytest.raises(InvalidBudget):
        await timed_app.limits.set_budget(budget)


@pytest.mark.parametrize("seed", range(8))
async def test_any_history_of_jobs_and_crashes_keeps_to_the_budget_of_their_agent(seed: int) -> None:
    """Calls say what they need: then no more is ever spent than there is, and nothing stays set aside at the end."""
    rng = random.Random(seed)
    limit, crashes = rng.randint(60, 200), rng.randint(0, 3)
    really_used, cut_off = [0], [0]

    async with TestApp(lease="5s") as app:

        @app.job(backoff=NOW, max_retries=50)
        async def agent(ctx: JobContext) -> None:
            async def call(used: int, fails: bool) -> None:
                really_used[0] += used
                await ctx.usage(tokens=used, cost=Decimal(used) / 100)
                await asyncio.sleep(rng.random() / 100)
                if fails:
                    raise ValueError("no")

            async def branch(number: int) -> None:
                for n in range(rng.randint(1, 3)):
                    estimate = rng.randint(1, 40)
                    used, fails = rng.randint(0, estimate), rng.random() < 0.2
                    with_estimate = ctx.options(tokens=estimate, key=f"{number}.{n}", on_change="keep")
                    try:
                        await with_estimate.step("call", call, used, fails)
                    except (ValueError, BudgetExceeded):
                        continue

            await asyncio.gather(*(branch(number) for number in range(3)))

        class Crash:
            def reached(self, job_id: object, type: str, key: str | None) -> bool:
                due = type in ("usage_recorded", "node_finished")
                crash = due and cut_off[0] < crashes and rng.random() < 0.2
                cut_off[0] += crash
                return crash

        app.kill_rule = Crash()
        await app.agents.create("many", kind="agent", on_busy="parallel")
        await app.limits.set_budget(Budget(tokens=limit, on_breach="fail"), agent="many")
        for _ in range(4):
            await app.enqueue(agent, agent="many")
        await app.run_until_idle(advance=True)
        store = await app.open()
        await store.limits.fold_budgets()
        budget = await app.limits.budget(agent="many")
        assert budget is not None
        reported = sum(job.state.tokens for job in (await app.jobs.list()).items)
        assert really_used[0] <= limit
        assert reported <= budget.spent["tokens"] <= limit
        assert budget.held["tokens"] == 0
        if not cut_off[0]:
            assert budget.spent["tokens"] == reported


async def test_several_jobs_are_enqueued_with_what_each_of_them_has(app: App) -> None:
    """All of them in one transaction, also where only some have a budget."""

    @app.job
    async def agent(ctx: JobContext, n: int) -> str:
        left = None if ctx.budget_left is None else ctx.budget_left["tokens"]
        return f"{ctx.fields.title} {left}"

    options: list[EnqueueOptions] = [
        {"budget": Budget(tokens=10), "title": "one"},
        {},
        {"stuck": Stuck(after="1h"), "title": "three", "idempotency_key": "k"},
    ]
    wanted = [Request(agent, n, each) for n, each in enumerate(options)]
    handles = await app.enqueue_many(wanted)
    again = await app.enqueue_many(wanted[2:])
    assert [handle.created for handle in [*handles, *again]] == [True, True, True, False]
    assert again[0].id == handles[2].id
    async with working(app):
        assert [await h.result(PATIENCE) for h in handles] == ["one 10", "None None", "three None"]
    assert types(await handles[2].events())[1:3] == ["fields_set", "stuck_set"]
    with pytest.raises(InvalidBudget):
        await app.enqueue_many([Request(agent, 7), Request(agent, 8, {"budget": "10"})])  # type: ignore[arg-type]
    assert len((await app.jobs.list()).items) == 3
