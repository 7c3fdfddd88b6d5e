"""The mark of an attempt that is at work: it is neither parked nor drained."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Protocol


class Working(Protocol):
    """An attempt, as seen by its marks."""

    def begin_work(self) -> asyncio.Task[Any] | None:
        """Returns what to give to `end_work`."""
        ...

    def end_work(self, branch: asyncio.Task[Any] | None) -> None:
        """The end of what `begin_work` began."""
        ...


class Busy:
    """`with run.busy():`, as a class because a generator costs three times as much, twice in every step."""

    __slots__ = ("_branch", "_run")

    def __init__(self, run: Working) -> None:
        self._run = run

    def __enter__(self) -> None:
        self._branch = self._run.begin_work()

    def __exit__(self, *_: object) -> None:
        self._run.end_work(self._branch)


async def cancelled(tasks: Collection[asyncio.Task[Any]], timeout: float) -> None:
    """Cancel these tasks, and wait so many seconds at most until they have ended."""
    some = list(tasks)
    for task in some:
        task.cancel()
    if some:
        await asyncio.wait(some, timeout=timeout)
