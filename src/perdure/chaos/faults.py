"""What goes wrong besides the workers: connections, the server, and people who change their minds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from perdure.chaos.actors import Meddler
from perdure.chaos.proxy import Proxy
from perdure.chaos.report import Report
from perdure.chaos.script import Trouble, troubles
from perdure.model.errors import StoreUnreachable

KILLS_PER_RESTART = 400

Restart = Callable[[], Awaitable[None]]


class Troublemaker:
    """Makes trouble until cancelled. url: the server itself. proxy: what stands in front of it, if anything does."""

    def __init__(
        self,
        report: Report,
        meddler: Meddler,
        *,
        seed: int,
        kills: int,
        url: str,
        proxy: Proxy | None,
        restart: Restart | None,
    ) -> None:
        self._report = report
        self._meddler = meddler
        self._seed = seed
        self._url = url
        self._proxy = proxy
        self._restart = restart
        times = max(1, kills // KILLS_PER_RESTART)
        self._restarts_at = [kills * n // (times + 1) for n in range(1, times + 1)]
        self._restarting: asyncio.Future[None] | None = None

    async def make(self) -> None:
        """One thing after the other; a restart whenever enough workers have died."""
        for trouble in troubles(self._seed):
            await asyncio.sleep(trouble.after)
            if trouble.what in ("cancel", "force", "hurry"):
                await self._meddler.meddle(trouble.what, trouble.choice)
            elif self._proxy is not None:
                await self._drop(self._proxy, trouble)
            await self._restart_when(self._report.kills)

    async def catch_up(self) -> None:
        """The restarts that a short rage left no time for, or cut off in the middle."""
        while self._restart is not None and self._restarts_at:
            await self._restart_when(self._restarts_at[0])

    async def abandon(self) -> None:
        """However the run ends: no restart goes on after it."""
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)

    async def _restart_when(self, kills: int) -> None:
        if self._restart is None or not self._restarts_at or kills < self._restarts_at[0]:
            return
        if self._restarting is None:
            self._restarting = asyncio.ensure_future(self._restart())
        await asyncio.shield(self._restarting)  # a server is not left half restarted because the rage is over
        self._restarting = None
        del self._restarts_at[0]
        self._report.done["restarts"] += 1

    async def _drop(self, proxy: Proxy, trouble: Trouble) -> None:
        lines = proxy.lines()
        line = proxy.busy_line(trouble.choice) if trouble.what == "swallow" or not lines else None
        line = line or (lines[int(trouble.choice * len(lines))] if lines else None)
        if line is None:
            return
        if trouble.what == "swallow":
            line.swallow()  # counted when it has swallowed something
        elif trouble.what == "cut":
            line.cut()
            self._report.done["cuts"] += 1
        elif line.pid is not None:
            from perdure.store.postgres.engine.terminate import end_backends

            with suppress(StoreUnreachable):
                self._report.done["sessions ended"] += await end_backends(self._url, [line.pid])
