"""Threads for one attempt: a function that waited for a free thread does not begin after the lease is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Protocol

from perdure.model.errors import Suspended


class Leased(Protocol):
    """An attempt, as seen by its threads."""

    @property
    def lease_ended(self) -> bool:
        """Whether its lease is over."""
        ...

    def lease_lost(self) -> None:
        """Stop it."""
        ...


class LeasedThreads(Executor):
    """Gives functions to the threads that all attempts share."""

    def __init__(self, threads: Executor, run: Leased) -> None:
        self._threads = threads
        self._run = run
        self._loop = asyncio.get_running_loop()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor.submit`. The future raises Suspended where the lease is over before a thread is free."""
        return self._threads.submit(self._begin, fn, *args, **kwargs)

    def _begin(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._run.lease_ended:
            self._loop.call_soon_threadsafe(self._run.lease_lost)
            raise Suspended("lease lost")
        return fn(*args, **kwargs)
