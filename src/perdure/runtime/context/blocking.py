"""BlockingContext: what a plain (sync) handler sees, from its own thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, overload

import typing_extensions  # comes with pydantic

from perdure.model.errors import InvalidInput, Suspended
from perdure.model.timing import Duration
from perdure.runtime.context.approvals import Decision
from perdure.runtime.context.context import JobContext

P = ParamSpec("P")
R = TypeVar("R")
T = typing_extensions.TypeVar("T", default=None)


class BlockingContext:
    """The context of a plain (sync) handler: the same calls, blocking. Used from the handler's own thread only."""

    def __init__(self, ctx: JobContext, loop: asyncio.AbstractEventLoop) -> None:
        self._ctx = ctx
        self._loop = loop

    job_id = property(lambda self: self._ctx.job_id, doc="The job's id.")
    kind = property(lambda self: self._ctx.kind, doc="The handler's name.")
    goal = property(lambda self: self._ctx.goal, doc="The job's message or title.")
    attempt = property(lambda self: self._ctx.attempt, doc="Counts every claim of the job, from 1.")
    retry_count = property(lambda self: self._ctx.retry_count, doc="Failures and crashes so far.")
    worker_id = property(lambda self: self._ctx.worker_id, doc="The worker that runs this attempt.")
    last_checkpoint = property(lambda self: self._ctx.last_checkpoint, doc="What an earlier attempt saved.")

    def options(self, **options: Any) -> BlockingContext:
        """See `JobContext.options`."""
        return BlockingContext(self._ctx.options(**options), self._loop)

    @overload
    def step(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """See `JobContext.step`."""
        return self._wait(self._ctx.step(name, fn, *args, **kwargs))

    @overload
    def tool(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def tool(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def tool(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """See `JobContext.tool`."""
        return self._wait(self._ctx.tool(name, fn, *args, **kwargs))

    def sleep(self, name: str, duration: Duration) -> None:
        """See `JobContext.sleep`."""
        self._wait(self._ctx.sleep(name, duration))

    def sleep_until(self, name: str, moment: datetime) -> None:
        """See `JobContext.sleep_until`."""
        self._wait(self._ctx.sleep_until(name, moment))

    def approve(self, name: str, *, title: str, payload: T = None, **options: Any) -> Decision[T]:  # type: ignore[assignment]  # as above
        """See `JobContext.approve`."""
        return self._wait(self._ctx.approve(name, title=title, payload=payload, **options))

    def checkpoint(self, state: Any) -> None:
        """See `JobContext.checkpoint`."""
        self._wait(self._ctx.checkpoint(state))

    def progress(self, fraction: float, text: str | None = None) -> None:
        """See `JobContext.progress`."""
        self._wait(self._ctx.progress(fraction, text))

    def emit(self, type: str, payload: Any = None) -> None:
        """See `JobContext.emit`."""
        self._wait(self._ctx.emit(type, payload))

    def usage(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        """See `JobContext.usage`."""
        self._wait(self._ctx.usage(tokens=tokens, cost=cost))

    def idempotency_key(self, name: str) -> str:
        """See `JobContext.idempotency_key`."""
        return self._ctx.idempotency_key(name)

    def _wait(self, coroutine: Coroutine[Any, Any, R]) -> R:
        run = self._ctx._run
        if asyncio._get_running_loop() is self._loop:
            coroutine.close()
            raise InvalidInput(
                "a plain handler's context was called on the worker's event loop, which would stand still for ever",
                hint="call it from the handler's own thread, not from an async function; or make the handler async",
            )

        async def guest() -> R:
            task = asyncio.current_task()
            assert task is not None
            run.adopt(task)
            return await coroutine

        try:
            return asyncio.run_coroutine_threadsafe(guest(), self._loop).result()
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            raise Suspended(run.over or "timed out") from None
