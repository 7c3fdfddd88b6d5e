"""The context of the attempt that the running code belongs to, for libraries that are called without it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.runtime.context.current_call import running_call

if TYPE_CHECKING:
    from perdure.runtime.context.context import JobContext

T = TypeVar("T")

running_context: contextvars.ContextVar[JobContext] = contextvars.ContextVar("perdure_context")

handler_loop: contextvars.ContextVar[asyncio.AbstractEventLoop] = contextvars.ContextVar("perdure_handler_loop")
"""The event loop of the worker, set for plain handlers, whose code runs in another thread."""


def current_context() -> JobContext:
    """The context that the handler was called with, in which this code runs: for code that a library calls.

    Raises LookupError outside of a handler.
    """
    try:
        return running_context.get()
    except LookupError:
        raise LookupError("current_context() is known only inside a handler") from None


def handler_context() -> JobContext | None:
    """The same, or None outside of a handler and inside the function of a step or tool."""
    return None if running_call.get(None) is not None else running_context.get(None)


async def on_handler_loop(work: Coroutine[Any, Any, T]) -> T:
    """Await what uses the context. A library that a plain handler calls may run an event loop of its own in its thread; the
    context belongs to that of the worker."""
    loop = handler_loop.get(None)
    if loop is None or loop is asyncio.get_running_loop():
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
