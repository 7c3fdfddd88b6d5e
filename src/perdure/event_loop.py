"""The event loop of a program that is a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

O = TypeVar("O")  # noqa: E741  what it returns


def run(main: Awaitable[O]) -> O:
    """asyncio.run on uvloop where it is installed."""
    try:
        import uvloop

        new_event_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    except ImportError:
        new_event_loop = asyncio.new_event_loop

    async def awaited() -> O:
        return await main

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(awaited())
