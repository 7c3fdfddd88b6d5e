"""kill -9 while a stuck job is repaired, while jobs spend from shared budgets, and inside a graph of LangGraph."""

import asyncio

import pytest

from perdure import Budget, Status
from tests.crash.apps import make_app
from tests.crash.bounded import TOKENS
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended

pytestmark = pytest.mark.crash

NOTICED = (
    "before record stuck_noticed",
    "after record stuck_noticed",
    "before finish RETRY",
    "before finish FAILED",
)
SPENT = ("after reserve_budget", "inside spend", "after record node_finished spend")
MOST = {"agent": 5, "tenant": 7}
"""Calls that fit the budgets."""


async def test_a_stuck_job_is_repaired_as_often_as_it_says(crew: Crew) -> None:
    async with make_app(crew.url) as app:
        handles = [await app.enqueue("idler", queue=point.replace(" ", "-")) for point in NOTICED]
        killed = [crew.start(queues=(point.replace(" ", "-"),), kill_at=point) for point in NOTICED]
        assert await asyncio.gather(*(child.ended() for child in killed)) == [-9] * len(NOTICED)
        second = crew.start(queues=tuple(point.replace(" ", "-") for point in NOTICED))
        await all_ended(app)
        await crew.dismiss(second)
        for handle in handles:
            job, noticed = await handle.get(), [e for e in await handle.events() if e.type == "stuck_noticed"]
            assert (job.status, job.error_kind) == (Status.FAILED, "stuck")
            actions = [event.payload["action"] for event in noticed]
            assert actions.count("retry") == 1, actions
            assert (actions[0], actions[-1]) == ("nudge", "fail")
    await check(crew.url, [handle.id for handle in handles], at_rest=True)


@pytest.mark.parametrize("kill_at", SPENT)
async def test_no_more_is_spent_than_shared_budgets_hold(crew: Crew, kill_at: str) -> None:
    async with make_app(crew.url) as app:
        await app.agents.create("a", kind="spender", max_parallel_jobs=3)
        await app.limits.set_budget(Budget(tokens=MOST["tenant"] * TOKENS, on_breach="fail"))
        await app.limits.set_budget(Budget(tokens=MOST["agent"] * TOKENS, on_breach="fail"), agent="a")
        own = [await app.enqueue("spender", 2, agent="a") for _ in range(3)]
        others = [await app.enqueue("spender", 2) for _ in range(2)]
        assert await crew.start(kill_at=kill_at).ended() == -9
        successors = crew.start(), crew.start()
        await all_ended(app)
        await crew.dismiss(*successors)
        calls = {handle.id: len(crew.effects(handle.id)) for handle in (*own, *others)}
        of_agent = sum(calls[handle.id] for handle in own)
        for agent, made, most in (("a", of_agent, MOST["agent"]), (None, sum(calls.values()), MOST["tenant"])):
            budget = await app.limits.budget(agent=agent)
            assert budget is not None
            counted = budget.spent["tokens"] + budget.held["tokens"]
            assert made * TOKENS <= counted <= most * TOKENS, (calls, budget)
        assert sum([await handle.result() for handle in (*own, *others)]) <= MOST["tenant"]
    await check(crew.url, list(calls), at_rest=True)


@pytest.mark.parametrize(
    ("kill_at", "ran"),
    [
        ("inside first", ["first", "first", "second"]),
        ("inside second", ["first", "second", "second"]),
        ("before finish COMPLETED", ["first", "second"]),
    ],
)
async def test_a_graph_goes_on_at_the_node_that_was_cut_off(crew: Crew, kill_at: str, ran: list[str]) -> None:
    async with make_app(crew.url) as app:
        handle = await app.enqueue("grapher")
        first = crew.start(kill_at=kill_at)
        assert await first.ended() == -9
        second = crew.start()
        assert await handle.result(60) == ["first", "second"]
        await crew.dismiss(second)
    assert [name for _, name in crew.effects(handle.id)] == ran
    await check(crew.url, [handle.id], at_rest=True)
