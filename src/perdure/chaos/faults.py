"""Faults besides those of workers: cut connections, server restarts, cancelled jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from perdure.chaos.clients import BY_PEOPLE, Controller
from perdure.chaos.proxy import Proxy
from perdure.chaos.report import Report
from perdure.chaos.script import InjectedFault, injected_faults
from perdure.model.errors import StoreUnreachable

KILLS_PER_RESTART = 400

Restart = Callable[[], Awaitable[None]]


class FaultInjector:
    """Injects faults until cancelled. url: the server itself. proxy: the proxy in front of it, if there is one."""

    def __init__(
        self,
        report: Report,
        controller: Controller,
        *,
        seed: int,
        kills: int,
        url: str,
        proxy: Proxy | None,
        restart: Restart | None,
    ) -> None:
        self._report = report
        self._controller = controller
        self._seed = seed
        self._url = url
        self._proxy = proxy
        self._restart = restart
        times = max(1, kills // KILLS_PER_RESTART)
        self._restarts_at = [kills * n // (times + 1) for n in range(1, times + 1)]
        self._restarting: asyncio.Future[None] | None = None

    async def inject(self) -> None:
        """Inject one fault after the other, and a restart whenever enough workers were killed."""
        for fault in injected_faults(self._seed):
            await asyncio.sleep(fault.after)
            if fault.what in BY_PEOPLE:
                await self._controller.control(fault.what, fault.choice)
            elif self._proxy is not None:
                await self._drop(self._proxy, fault)
            await self._restart_when(self._report.kills)

    async def finish_restarts(self) -> None:
        """Do the restarts that there was no time for, or that were interrupted."""
        while self._restart is not None and self._restarts_at:
            await self._restart_when(self._restarts_at[0])

    async def cancel_restart(self) -> None:
        """Cancel a restart that is running."""
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)

    async def _restart_when(self, kills: int) -> None:
        if self._restart is None or not self._restarts_at or kills < self._restarts_at[0]:
            return
        if self._restarting is None:
            self._restarting = asyncio.ensure_future(self._restart())
        await asyncio.shield(self._restarting)  # a restart is completed even if this is cancelled
        self._restarting = None
        del self._restarts_at[0]
        self._report.done["restarts"] += 1

    async def _drop(self, proxy: Proxy, fault: InjectedFault) -> None:
        connections = proxy.connections()
        connection = proxy.busy_connection(fault.choice) if fault.what == "drop_answer" or not connections else None
        connection = connection or (connections[int(fault.choice * len(connections))] if connections else None)
        if connection is None:
            return
        if fault.what == "drop_answer":
            connection.drop_answer()  # counted when an answer is dropped
        elif fault.what == "cut":
            connection.cut()
            self._report.done["cuts"] += 1
        elif connection.pid is not None:
            from perdure.store.postgres.engine.terminate import end_backends

            with suppress(StoreUnreachable):
                self._report.done["sessions ended"] += await end_backends(self._url, [connection.pid])
