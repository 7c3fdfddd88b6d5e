"""Progress of a running job: only the latest value is kept, and it is written at most four times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from perdure.model.current_attempt import attempt_ids
from perdure.model.effects import Effect
from perdure.model.errors import LeaseLost, PerdureError
from perdure.model.jobs import Lease
from perdure.runtime.stuck import StuckWatch
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.run")

INTERVAL = 0.25
"""Seconds between two writes."""


class Progressing(Protocol):
    """What writing its progress needs of an attempt."""

    @property
    def store(self) -> Store: ...

    @property
    def lease(self) -> Lease: ...

    @property
    def stuck(self) -> StuckWatch | None: ...

    def lease_lost(self) -> None: ...


class Progress:
    """Keeps the latest value until it is written; `flush` writes what is left at the end of the attempt."""

    def __init__(self, write: Callable[[Effect], Awaitable[None]]) -> None:
        self._write = write
        self._latest: Effect | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._not_before = 0.0

    def note(self, value: Effect) -> None:
        """Keep a value; it is written now, or a quarter of a second after the last write."""
        self._latest = value
        if self._timer is None and (self._writing is None or self._writing.done()):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, self._not_before - loop.time()), self._start)

    def _start(self) -> None:
        self._timer = None
        self._writing = asyncio.get_running_loop().create_task(self._write_latest())

    async def _write_latest(self) -> None:
        loop = asyncio.get_running_loop()
        while (figure := self._latest) is not None:
            self._latest = None
            await self._write(figure)
            self._not_before = loop.time() + INTERVAL
            if self._pending():
                self._timer = loop.call_later(INTERVAL, self._start)
                return

    async def flush(self) -> None:
        """Write what has not been written; nothing is written after this returns."""
        self._stop_timer()
        if self._writing is not None:
            await self._writing
            self._stop_timer()
        figure, self._latest = self._latest, None
        if figure is not None:
            await self._write(figure)

    def _pending(self) -> bool:
        return self._latest is not None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def writer_of(run: Progressing) -> Callable[[Effect], Awaitable[None]]:
    """Writes the progress of an attempt under its lease."""

    async def write(figure: Effect) -> None:
        try:
            await run.store.leases.record(run.lease, (), effects=(figure,))
        except LeaseLost:
            run.lease_lost()
        except PerdureError as error:  # the outcome that follows matters more than progress
            log.warning("progress not written", **attempt_ids(), error=str(error))
        else:
            if run.stuck is not None:
                run.stuck.progressed()

    return write
