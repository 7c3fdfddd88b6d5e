"""Graphs as parts of jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import RESUME
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Interrupt, StateSnapshot

from perdure.integrations.in_handler import numbered
from perdure.model.errors import Denied, InvalidInput
from perdure.runtime.context.context import JobContext
from perdure.runtime.context.current_context import handler_context

MARK = "perdure_run"
"""The member of the metadata of a checkpoint that says which run of which job it is of."""


async def run(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    input: Any,
    config: RunnableConfig | None = None,
    *,
    answer: Callable[[Interrupt], Awaitable[Any]] | None = None,
    **options: Any,
) -> Any:
    """Run a graph in a handler and return the values of its state. A later attempt goes on at the last checkpoint: nodes that had
    ended do not run again, one that was cut off does.

    graph: compiled with a `PerdureSaver`. config: its `thread_id` is by default the job's id. answer: called for each interrupt
    of the graph; what it returns resumes it. By default a person is asked by `ctx.approve`, and the graph gets
    `{"approved": True, "payload": ...}` or `{"approved": False, "reason": ...}`. options: as of `graph.ainvoke`.

    Raises InvalidInput outside of a handler, and for a graph without a checkpointer.
    """
    ctx = handler_context()
    if ctx is None:
        raise InvalidInput("this runs a graph inside a handler", hint="await graph.ainvoke(...) outside")
    if not graph.checkpointer:
        raise InvalidInput("this graph has no checkpointer", hint="builder.compile(checkpointer=PerdureSaver(app))")
    given = config or {}
    mark = f"{ctx.job_id} {numbered(ctx, 'graph')}"
    of_thread = {"thread_id": str(ctx.job_id), **given.get("configurable", {})}
    own: RunnableConfig = {**given, "configurable": of_thread, "metadata": {**given.get("metadata", {}), MARK: mark}}
    options = {"durability": "sync", **options}
    state = await graph.aget_state(own)
    begun = (state.metadata or {}).get(MARK) == mark
    if not begun:
        await graph.ainvoke(input, own, **options)
    elif state.next and not state.interrupts:
        await graph.ainvoke(None, own, **options)
    while (state := await graph.aget_state(own)).interrupts:
        resume = await _answers(ctx, graph, state, own, answer)
        await graph.ainvoke(Command(resume=resume), own, **options)
    return state.values


async def _answers(
    ctx: JobContext,
    graph: CompiledStateGraph[Any, Any, Any, Any],
    state: StateSnapshot,
    config: RunnableConfig,
    answer: Callable[[Interrupt], Awaitable[Any]] | None,
) -> dict[str, Any]:
    """What resumes the graph, by the ids of its interrupts."""
    asked = state.interrupts
    if answer is not None:
        return {one.id: await answer(one) for one in asked}
    number = await _answered(graph, config)
    return {one.id: await _ask(ctx, one, f"{one.id}.{number}") for one in asked}


async def _answered(graph: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig) -> int:
    """How many interrupts of this step were answered: all interrupts of one node have the same id."""
    saver = graph.checkpointer
    assert saver is not None
    assert not isinstance(saver, bool)
    found = await saver.aget_tuple(config)
    writes = found.pending_writes if found is not None else None
    return sum(len(value) if isinstance(value, list) else 1 for _, channel, value in writes or () if channel == RESUME)


async def _ask(ctx: JobContext, asked: Interrupt, key: str) -> dict[str, Any]:
    try:
        decision = await ctx.options(key=key).approve(
            "interrupt", title="The graph asks", payload=asked.value, on_deny="resume"
        )
    except Denied as denied:
        return {"approved": False, "reason": str(denied)}
    return {"approved": True, "payload": decision.payload}
