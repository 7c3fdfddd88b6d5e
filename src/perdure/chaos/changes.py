"""Two releases of the same code, which meet the jobs of each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from perdure.chaos.effects import EffectLog
from perdure.chaos.jobs import Action, Op
from perdure.runtime.context.context import JobContext


class Change:
    """The ops that the second release does otherwise. code: 0 or 1, which of them this is."""

    def __init__(self, effects: EffectLog, code: int) -> None:
        self._effects = effects
        self._code = code
        self.actions: dict[Action, Callable[[JobContext, Op], Awaitable[Any]]] = {
            "changed": self._changed,
            "added": self._added,
            "renamed": self._renamed,
        }

    async def _changed(self, ctx: JobContext, op: Op) -> Any:
        """A step with another argument: once it is recorded, the other release does not fit."""

        async def act(code: int) -> str:
            del code
            self._effects.append(ctx, op.name)
            return op.name

        return await ctx.step(op.name, act, self._code)

    async def _added(self, ctx: JobContext, op: Op) -> None:
        """A step that only the second release has."""

        async def act() -> None:
            self._effects.append(ctx, op.name)

        if self._code:
            await ctx.step(op.name, act)

    async def _renamed(self, ctx: JobContext, op: Op) -> None:
        """A sleep with another name."""
        await ctx.sleep(f"{op.name}/{self._code}", op.seconds)
