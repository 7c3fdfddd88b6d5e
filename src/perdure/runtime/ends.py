"""The ends of attempts on their way into the store: those that come together are written in one call.

A slot is free as soon as its attempt has ended; the lease is kept until the end is written.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable

import structlog

from perdure.model.errors import LeaseLost
from perdure.model.jobs import Outcome
from perdure.model.states import Status
from perdure.runtime.finish import end_effects, log_lost_lease, write_end
from perdure.runtime.lease import LeasedJob, LeaseManager
from perdure.runtime.observer import Observer
from perdure.runtime.tracebacks import traceback_of
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.worker")

MOST_ENDS = 500
"""Of one call."""


class Ends:
    """Writes ends in the background. written: called each time some were written."""

    def __init__(
        self, store: Store, leases: LeaseManager, observer: Observer | None, written: Callable[[], None]
    ) -> None:
        self._store = store
        self._leases = leases
        self._observer = observer
        self._written = written
        self._context = contextvars.copy_context()
        self._waiting: deque[tuple[LeasedJob, Outcome]] = deque()
        self._in_writing = 0
        self._writer: asyncio.Task[None] | None = None
        self._single: set[asyncio.Task[Status | None]] = set()

    @property
    def unwritten(self) -> int:
        """How many are not written yet."""
        return len(self._waiting) + self._in_writing + len(self._single)

    def add(self, leased: LeasedJob, outcome: Outcome) -> None:
        """Write how an attempt ended. Called in its context, to which log lines about an error belong."""
        if (
            outcome.error is not None
            or end_effects(leased)
            or (self._observer is not None and not outcome.status.terminal)
        ):
            self._write_alone(leased, outcome)
            return
        self._waiting.append((leased, outcome))
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_together(), context=self._context)

    async def wait(self) -> None:
        """Return when all are written, or given up."""
        while tasks := [task for task in (self._writer, *self._single) if task is not None]:
            await asyncio.wait(tasks)

    async def _write_together(self) -> None:
        try:
            while self._waiting:
                ends = [self._waiting.popleft() for _ in range(min(MOST_ENDS, len(self._waiting)))]
                self._in_writing = len(ends)
                try:
                    results = await self._store.leases.finish_many(
                        [(leased.claimed.lease, outcome) for leased, outcome in ends]
                    )
                except Exception as error:  # noqa: BLE001  each is tried again by itself, and says what is wrong
                    results = [error] * len(ends)
                self._in_writing = 0
                for (leased, outcome), result in zip(ends, results, strict=True):
                    if isinstance(result, Exception) and not isinstance(result, LeaseLost):
                        self._write_alone(leased, outcome)
                        continue
                    self._leases.remove(leased)
                    if isinstance(result, LeaseLost):
                        # not from here: a log that raises must not keep the others from being written
                        asyncio.get_running_loop().call_soon(log_lost_lease, leased)
                    if self._observer is not None:
                        status = None if isinstance(result, LeaseLost) else result
                        self._observer.attempt_ended(leased.claimed, outcome, status)
                self._written()
        finally:
            self._writer = None

    def _write_alone(self, leased: LeasedJob, outcome: Outcome) -> None:
        task = asyncio.get_running_loop().create_task(write_end(self._store, leased, outcome, self._observer))
        self._single.add(task)
        task.add_done_callback(lambda _: self._leases.remove(leased))
        task.add_done_callback(self._written_alone)

    def _written_alone(self, task: asyncio.Task[Status | None]) -> None:
        self._single.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the end of a job could not be written", exception=traceback_of(error))
        self._written()
