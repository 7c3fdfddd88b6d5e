"""The app under measurement: real handlers on a real App, the same in every process."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from perdure import App, Handler, JobContext

RESULT = {"ok": True, "value": 12345}
PAYLOAD = {"task": "demo", "args": {"prompt": "y" * 150}}


@dataclass
class Counted:
    """How often handlers ran in this process, and a place to wait for it."""

    ran: int = 0
    first: float = 0.0
    last: float = 0.0
    _goal: int = 0
    _reached: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self) -> None:
        self.ran += 1
        if self.ran == self._goal:
            self._reached.set()

    async def reach(self, goal: int, *, patience: float = 600.0) -> None:
        """Wait until handlers ran that often. Raises TimeoutError."""
        if self.ran >= goal:
            return
        self._goal = goal
        self._reached.clear()
        async with asyncio.timeout(patience):
            await self._reached.wait()


@dataclass
class Subject:
    """An App and its handlers: `noop` returns a constant, `climb` makes durable steps, `moment` says when it began."""

    app: App
    noop: Handler[Any, Any]
    climb: Handler[Any, Any]
    moment: Handler[Any, Any]
    counted: Counted


async def nothing() -> dict[str, Any]:
    return RESULT


def subject(url: str) -> Subject:
    """The App on this database, whose schema exists or is made at first use."""
    app, counted = App(url, migrate=True), Counted()

    @app.job
    async def noop(ctx: JobContext, payload: dict[str, Any]) -> dict[str, Any]:
        counted.count()
        return RESULT

    @app.job
    async def climb(ctx: JobContext, steps: int) -> int:
        counted.first = counted.first or time.perf_counter()
        for _ in range(steps):
            await ctx.step("step", nothing)
        counted.last = time.perf_counter()
        counted.count()
        return steps

    @app.job
    async def moment(ctx: JobContext) -> int:
        return time.monotonic_ns()  # one clock for all processes of a machine

    return Subject(app, noop, climb, moment, counted)
