"""Doing several things at once, and not overlooking that one of them broke."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

Watch = Callable[[Awaitable[Any]], Awaitable[None]]


async def unless_broken(main: Awaitable[Any], others: Iterable[asyncio.Future[Any]]) -> None:
    """Await `main`; if one of the others raises before it ends, cancel it and raise that. One that merely ends is fine."""
    task = asyncio.ensure_future(main)
    going = set(others)
    try:
        while not task.done():
            done, _ = await asyncio.wait({task, *going}, return_when=asyncio.FIRST_COMPLETED)
            for other in done & going:
                going.discard(other)
                other.result()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def meanwhile(*work: Coroutine[Any, Any, None]) -> AsyncIterator[Watch]:
    """Do all this at the side, until the end of the context. Gives `unless_broken` for whatever is done in it."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        yield lambda main: unless_broken(main, tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
