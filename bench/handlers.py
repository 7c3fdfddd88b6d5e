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
    _goals: list[tuple[int, asyncio.Event]] = field(default_factory=list)

    def count(self) -> None:
        self.ran += 1
        for goal, reached in self._goals:
            if self.ran >= goal:
                reached.set()

    async def reach(self, goal: int, *, patience: float = 600.0) -> None:
        """Wait until handlers ran that often. Raises TimeoutError."""
        reached = asyncio.Event()
        if self.ran >= goal:
            return
        self._goals.append((goal, reached))
        async with asyncio.timeout(patience):
            await reached.wait()
        self._goals.clear()


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
