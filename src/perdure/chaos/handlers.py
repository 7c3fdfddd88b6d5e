"""What the jobs of a run do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from perdure.app import App
from perdure.chaos.changes import Change
from perdure.chaos.effects import EffectLog
from perdure.chaos.harm import Harm
from perdure.chaos.jobs import (
    ATTEMPT_TIMEOUT,
    ECHO,
    FLEETING,
    LIMIT,
    MANY_RETRIES,
    QUEUE,
    RATE,
    RATED,
    REPLY_TIMEOUT,
    Action,
    Failing,
    Op,
    OpList,
    branches,
)
from perdure.chaos.listener import add_listener
from perdure.chaos.messages import add_agents
from perdure.config import load_settings
from perdure.model.errors import Denied, Fail, ReplyTimeout, Snooze
from perdure.model.timing import Backoff
from perdure.runtime.context.blocking import BlockingContext
from perdure.runtime.context.context import JobContext


class Handlers:
    """The handlers, with the file of their effects. code: 0 or 1, which of two releases of them this is."""

    def __init__(self, effects: EffectLog, code: int) -> None:
        self._effects = effects
        self._actions: dict[Action, Callable[[JobContext, Op], Awaitable[Any]]] = {
            **Harm(effects).actions,
            **Change(effects, code).actions,
            "step": self._step,
            "thread": self._thread,
            "both": self._both,
            "flaky": self._flaky,
            "tool": self._tool,
            "sleep": self._sleep,
            "approve": self._approve,
            "checkpoint": self._checkpoint,
            "usage": self._usage,
            "emit": self._emit,
            "progress": self._progress,
            "error": self._raise,
            "caught step": self._caught_step,
            "caught tool": self._caught_tool,
            "lost": self._lost,
            "snooze": self._snooze,
            "signal": self._signal,
            "ask": self._ask,
        }

    async def run(self, ctx: JobContext, work: OpList) -> list[Any]:
        """Run the ops in order."""
        return [await self._actions[op.do](ctx, op) for op in work.ops]

    def plain(self, ctx: BlockingContext, work: OpList) -> list[Any]:
        """Run the ops in a thread."""
        return [self._run_plain(ctx, op) for op in work.ops]

    async def fails(self, ctx: JobContext, failing: Failing) -> None:
        """Fail at once or after the retries."""
        await ctx.step("before", partial(self._act, ctx, Op("step", "before")))
        if failing.fatal:
            raise Fail("this job always fails")
        raise RuntimeError("this job fails in every attempt")

    async def _act(self, ctx: JobContext, op: Op, what: str = "") -> str:
        self._effects.append(ctx, what or op.name)
        await asyncio.sleep(op.seconds)
        return what or op.name

    async def _step(self, ctx: JobContext, op: Op) -> Any:
        return await ctx.step(op.name, partial(self._act, ctx, op))

    async def _thread(self, ctx: JobContext, op: Op) -> Any:
        def work() -> str:
            self._effects.append(ctx, op.name)
            return op.name

        return await ctx.step(op.name, work)

    async def _both(self, ctx: JobContext, op: Op) -> Any:
        steps = (ctx.options(key=name).step(op.name, partial(self._act, ctx, op, name)) for name in branches(op))
        return list(await asyncio.gather(*steps))

    async def _flaky(self, ctx: JobContext, op: Op) -> Any:
        calls = 0

        async def call() -> str:
            nonlocal calls
            calls += 1
            if calls <= op.times:
                raise ConnectionError("not this time")
            return await self._act(ctx, op)

        return await ctx.options(retries=op.times, backoff=Backoff(base=0.01, cap=0.05)).step(op.name, call)

    async def _tool(self, ctx: JobContext, op: Op) -> Any:
        return await ctx.options(on_unknown=op.on_unknown).tool(op.name, partial(self._act, ctx, op))

    async def _sleep(self, ctx: JobContext, op: Op) -> None:
        await ctx.sleep(op.name, op.seconds)

    async def _approve(self, ctx: JobContext, op: Op) -> Any:
        try:
            decision = await ctx.approve(
                op.name,
                title=f"May {op.name} be?",
                payload={"value": op.name, "answer": op.answer},
                expires_in=op.seconds if op.answer == "nothing" else None,
                on_deny=op.on_deny,
                on_expiry=op.on_expiry,
                notify=self._effects.token,
            )
        except Denied:
            return f"{op.name} refused"
        return decision.payload["value"] if decision.approved else f"{op.name} refused"

    async def _checkpoint(self, ctx: JobContext, op: Op) -> None:
        await ctx.checkpoint({"at": op.name})

    async def _usage(self, ctx: JobContext, op: Op) -> None:
        del op
        await ctx.usage(tokens=7)

    async def _emit(self, ctx: JobContext, op: Op) -> None:
        await ctx.emit("waypoint", {"name": op.name})

    async def _progress(self, ctx: JobContext, op: Op) -> None:
        await ctx.progress(0.5, op.name)

    async def _raise(self, ctx: JobContext, op: Op) -> None:
        if ctx.retry_count < op.times:
            raise RuntimeError(f"{op.name} raises in this attempt")

    async def _snooze(self, ctx: JobContext, op: Op) -> None:
        if ctx.attempt <= op.times:
            raise Snooze(op.seconds)

    async def _signal(self, ctx: JobContext, op: Op) -> str:
        return await ctx.wait_signal(op.name, str)

    async def _ask(self, ctx: JobContext, op: Op) -> str:
        with suppress(ReplyTimeout):  # the job that was to answer has lost more workers than it may
            return await ctx.ask(ECHO, op.name, str, timeout=REPLY_TIMEOUT)
        return op.name

    async def _caught_step(self, ctx: JobContext, op: Op) -> str:
        async def fail() -> None:
            await self._act(ctx, op)
            raise ValueError(f"{op.name} fails")

        with suppress(ValueError):
            await ctx.step(op.name, fail)
        return op.name

    async def _caught_tool(self, ctx: JobContext, op: Op) -> str:
        async def fail() -> None:
            await self._act(ctx, op)
            raise ValueError(f"{op.name} was refused") if op.known else TimeoutError(f"{op.name} was not answered")

        with suppress(ValueError, TimeoutError):
            await ctx.options(on_unknown=op.on_unknown).tool(op.name, fail)
        return op.name

    async def _lost(self, ctx: JobContext, op: Op) -> Any:
        async def act() -> str:
            done = await self._act(ctx, op)
            if self._effects.happens(ctx, op.name, op.times):
                raise TimeoutError(f"{op.name} was not answered")
            return done

        return await ctx.options(on_unknown=op.on_unknown).tool(op.name, act)

    def _run_plain(self, ctx: BlockingContext, op: Op) -> Any:
        def act() -> str:
            self._effects.append(ctx, op.name)
            return op.name

        match op.do:
            case "step" | "thread":
                return ctx.step(op.name, act)
            case "tool":
                return ctx.options(on_unknown=op.on_unknown).tool(op.name, act)
            case "sleep":
                return ctx.sleep(op.name, op.seconds)
            case _:
                raise Fail(f"a plain handler cannot {op.do}")


def make_app(url: str, tenant: str, directory: Path, generation: int = 0) -> App:
    """The App of every process of a run. generation: how often the code has changed; every second one has the same code again."""
    own = load_settings(
        {"database_url": url, "tenant": tenant}, environ={}, directory=directory
    )  # no perdure.toml from elsewhere
    app = App(settings=own, migrate=False, via="chaos", version=f"{generation + 1}")
    handlers = Handlers(EffectLog(directory), generation % 2)
    quick = Backoff(base=0.02, cap=0.4)
    app.job(name="chaos.ops", queue=QUEUE, max_retries=MANY_RETRIES, backoff=quick)(handlers.run)
    app.job(name="chaos.timed", queue=QUEUE, max_retries=MANY_RETRIES, backoff=quick, timeout=ATTEMPT_TIMEOUT)(
        handlers.run
    )
    app.job(name="chaos.plain", queue=QUEUE, max_retries=MANY_RETRIES, backoff=quick)(handlers.plain)
    app.job(name="chaos.limited", queue=QUEUE, max_retries=MANY_RETRIES, backoff=quick, max_concurrent=LIMIT)(
        handlers.run
    )
    app.job(name="chaos.fails", queue=QUEUE, max_retries=2, backoff=quick)(handlers.fails)
    app.job(
        name=RATED,
        queue=QUEUE,
        max_retries=MANY_RETRIES,
        backoff=quick,
        concurrency_key=f"{RATED} 0",
        max_per_minute=RATE,
    )(handlers.run)
    app.job(name=FLEETING, queue=QUEUE, max_retries=MANY_RETRIES, backoff=quick)(handlers.run)
    add_agents(app, quick)
    add_listener(app, quick)
    return app
