"""Handlers that harm their own worker: that hang, hear no cancellation, block the event loop, or end the process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from perdure.chaos.effects import EffectLog
from perdure.chaos.jobs import ATTEMPT_TIMEOUT, Action, Op
from perdure.chaos.worker_config import LEASE
from perdure.runtime.context.context import JobContext

ENDED_BY_JOB = 86
"""The exit code of a worker whose process was ended by a job."""
TOO_LONG = ATTEMPT_TIMEOUT + 1.2
BLOCKED = LEASE * 1.4


class Harm:
    """The ops that do harm; each does so `times` times in the life of its job, whatever is killed."""

    def __init__(self, effects: EffectLog) -> None:
        self._effects = effects
        self.actions: dict[Action, Callable[[JobContext, Op], Awaitable[Any]]] = {
            "hang": self._hang,
            "deaf": self._deaf,
            "stuck": self._stuck,
            "block": self._block,
            "exit": self._exit,
        }

    async def _hang(self, ctx: JobContext, op: Op) -> None:
        if ctx.retry_count < op.times:
            await asyncio.sleep(3600)

    async def _deaf(self, ctx: JobContext, op: Op) -> None:
        """It goes on though it is cancelled, for longer than its timeout and the grace."""
        if not self._effects.happens(ctx, op.name, op.times):
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + TOO_LONG
        while (left := end - loop.time()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(left)

    async def _stuck(self, ctx: JobContext, op: Op) -> Any:
        """A thread that nothing can interrupt."""

        def work() -> str:
            self._effects.append(ctx, op.name)
            if self._effects.happens(ctx, op.name, op.times):
                time.sleep(TOO_LONG)
            return op.name

        return await ctx.step(op.name, work)

    async def _block(self, ctx: JobContext, op: Op) -> None:
        if self._effects.happens(ctx, op.name, op.times):
            time.sleep(BLOCKED)  # noqa: ASYNC251  that is the harm

    async def _exit(self, ctx: JobContext, op: Op) -> None:
        if self._effects.happens(ctx, op.name, op.times):
            os._exit(ENDED_BY_JOB)
