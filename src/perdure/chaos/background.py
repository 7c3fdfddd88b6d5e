"""Tasks in the background, whose failure ends what is awaited meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

Watch = Callable[[Awaitable[Any]], Awaitable[None]]


async def unless_failed(main: Awaitable[Any], others: Iterable[asyncio.Future[Any]]) -> None:
    """Await `main`; if one of the others raises before that, cancel `main` and raise it. Others may end without an error."""
    task = asyncio.ensure_future(main)
    running = set(others)
    try:
        while not task.done():
            done, _ = await asyncio.wait({task, *running}, return_when=asyncio.FIRST_COMPLETED)
            for other in done & running:
                running.discard(other)
                other.result()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def in_background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[Watch]:
    """Run these in the background until the end of the context. Yields `unless_failed` for what is awaited in it."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        yield lambda main: unless_failed(main, tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
