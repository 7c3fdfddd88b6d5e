"""The app that is measured: handlers on an App, the same in every process."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from perdure import App, Handler, JobContext

RESULT = {"ok": True, "value": 12345}
PAYLOAD = {"task": "demo", "args": {"prompt": "y" * 150}}


@dataclass
class Counter:
    """How often handlers ran in this process, when, and what pick-up took."""

    ran: int = 0
    first: float = 0.0
    last: float = 0.0
    """When the first step of this process began and the last one ended."""
    pickups: list[float] = field(default_factory=list)
    """Milliseconds from the call of enqueue to the start of the handler."""
    on_count: Callable[[int], None] | None = None
    _goal: int = 0
    _reached: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self) -> None:
        self.ran += 1
        if self.on_count is not None:
            self.on_count(self.ran)
        if self.ran == self._goal:
            self._reached.set()

    async def reach(self, goal: int, *, timeout: float = 600.0) -> None:
        """Wait until handlers ran that often. Raises TimeoutError."""
        if self.ran >= goal:
            return
        self._goal = goal
        self._reached.clear()
        async with asyncio.timeout(timeout):
            await self._reached.wait()


@dataclass
class BenchApp:
    """An App and its handlers: `noop` returns a constant, `discard` nothing, `make_steps` makes durable steps, `pickup` notes how
    long after the call of enqueue it began."""

    app: App
    noop: Handler[Any, Any]
    discard: Handler[Any, Any]
    make_steps: Handler[Any, Any]
    pickup: Handler[Any, Any]
    counter: Counter


async def empty_step() -> dict[str, Any]:
    return RESULT


def bench_app(url: str) -> BenchApp:
    """The App on this database, whose schema exists or is made at first use."""
    app, counter = App(url, migrate=True), Counter()

    @app.job
    async def noop(ctx: JobContext, payload: dict[str, Any]) -> dict[str, Any]:
        counter.count()
        return RESULT

    @app.job
    async def discard(ctx: JobContext, payload: dict[str, Any]) -> None:
        counter.count()

    @app.job
    async def make_steps(ctx: JobContext, steps: int) -> int:
        counter.first = counter.first or time.perf_counter()
        for _ in range(steps):
            await ctx.step("step", empty_step)
        counter.last = time.perf_counter()
        counter.count()
        return steps

    @app.job
    async def pickup(ctx: JobContext, called: int) -> None:
        if called:  # time.monotonic_ns() of the process that enqueued it: one clock for all processes of a machine
            counter.pickups.append((time.monotonic_ns() - called) / 1e6)
        counter.count()

    return BenchApp(app, noop, discard, make_steps, pickup, counter)
