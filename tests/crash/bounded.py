"""Handlers of the crash tests that are stopped from outside, or go on elsewhere: one that gets stuck, one that spends from shared
budgets, and one that runs a graph of LangGraph."""

import asyncio
import operator
from typing import Annotated, Any, TypedDict

from perdure import App, Backoff, BudgetExceeded, JobContext, Stuck
from tests.crash.kill_points import at_point, write_mark

AT_ONCE = Backoff(base=0, cap=0)
TOKENS = 10
"""What one call of a spender uses."""


def add_bounded(app: App) -> None:
    """Register them."""

    @app.job(max_retries=100, backoff=AT_ONCE, stuck=Stuck(after=0.3, repair_attempts=1))
    async def idler(ctx: JobContext) -> None:
        await ctx.step("one", str, "one")
        await asyncio.Event().wait()

    @app.job(max_retries=100, backoff=AT_ONCE)
    async def spender(ctx: JobContext, calls: int) -> int:
        async def spend() -> None:
            write_mark("effects", f"{ctx.job_id} {ctx.attempt} spend")
            await asyncio.sleep(0.01)
            await ctx.usage(tokens=TOKENS)
            at_point("inside spend")

        for done in range(calls):
            try:
                await ctx.options(tokens=TOKENS).step("spend", spend)
            except BudgetExceeded:
                return done
        return calls

    @app.job(max_retries=100, backoff=AT_ONCE)
    async def grapher(ctx: JobContext) -> list[str]:
        from perdure.integrations.langgraph import run  # the other processes of these tests need not import it

        return list((await run(graph_of(ctx), {"done": []}))["done"])


class State(TypedDict):
    done: Annotated[list[str], operator.add]


def graph_of(ctx: JobContext) -> Any:
    """Two nodes, one after the other."""
    from langgraph.graph import END, START, StateGraph

    from perdure.integrations.langgraph import PerdureSaver

    def node(name: str) -> Any:
        def run(state: State) -> State:
            del state
            write_mark("effects", f"{ctx.job_id} {ctx.attempt} {name}")
            at_point(f"inside {name}")
            return {"done": [name]}

        return run

    builder = StateGraph(State)
    builder.add_node("first", node("first"))
    builder.add_node("second", node("second"))
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    builder.add_edge("second", END)
    return builder.compile(checkpointer=PerdureSaver())
