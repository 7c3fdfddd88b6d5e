"""Calling a handler: async ones in the task of their run, plain ones in a thread with a blocking context."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable
from typing import Any

from perdure.runtime.context.blocking import BlockingContext
from perdure.runtime.context.context import JobContext
from perdure.runtime.context.current_context import handler_loop, running_context
from perdure.runtime.of_agent import load_agent, may_be_of_agent
from perdure.runtime.registry import in_thread
from perdure.runtime.run import Run


def invoke(run: Run, arguments: tuple[Any, ...]) -> Awaitable[Any]:
    """Call the run's handler; what it returns is to be awaited."""
    return _as_agent(run, arguments) if may_be_of_agent(run.claimed) else _call(run, arguments)


async def _as_agent(run: Run, arguments: tuple[Any, ...]) -> Any:
    run.of_agent = await load_agent(run.store, run.claimed)
    if run.of_agent is not None and run.of_agent.has_signals:
        await run.load_history()  # of a first attempt as well: its claim may have brought signals
    return await _call(run, arguments)


def _call(run: Run, arguments: tuple[Any, ...]) -> Awaitable[Any]:
    context = run.context = JobContext(run)
    running_context.set(context)
    if run.handler.is_async:
        result: Awaitable[Any] = run.handler.fn(context, *arguments)
        return result
    return _in_its_thread(run, context, arguments)


async def _in_its_thread(run: Run, ctx: JobContext, arguments: tuple[Any, ...]) -> Any:
    """A thread cannot be cancelled: when the run is stopped or times out the handler's next call on the context raises
    Suspended, and the slot stays held until it returns, or until the process ends.
    """
    loop = asyncio.get_running_loop()
    context = BlockingContext(ctx, loop)
    handler_loop.set(loop)
    here = contextvars.copy_context()  # what marks log lines and spans as this attempt's
    thread = in_thread(run.handler_threads, here.run, run.handler.fn, context, *arguments)
    while not thread.done():
        try:
            await asyncio.wait({thread})
        except asyncio.CancelledError:
            if run.abandoned:
                thread.cancel()  # it goes on; its result is ignored
                raise
            if run.stop_reason is None and not run.timed_out:
                raise
            run.close_context()
    if run.timed_out:
        thread.exception()
        raise asyncio.CancelledError
    return await thread
