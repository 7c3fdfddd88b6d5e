"""The row of a worker: written when it starts and renewed while it runs; an operator's commands are read from it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence

import structlog

from perdure.model.errors import PerdureError
from perdure.model.workers import WorkerCommand, WorkerInfo, WorkerState
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.worker")

INTERVAL = 2.0
"""Seconds between two heartbeats."""


class WorkerRow:
    """The row of one worker. counts: how many calls hang in it, and how often its event loop stood still."""

    def __init__(self, store: Store, worker_id: str, counts: Callable[[], tuple[int, int]]) -> None:
        self._store = store
        self._id = worker_id
        self._counts = counts

    async def register(
        self, *, queues: Sequence[str], kinds: Sequence[str], concurrency: int, grace: float, version: str
    ) -> None:
        """Write the row. Raises StoreUnreachable."""
        now = await self._store.now()
        info = WorkerInfo(
            id=self._id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=tuple(queues),
            kinds=tuple(kinds),
            concurrency=concurrency,
            state=WorkerState.RUNNING,
            started_at=now,
            heartbeat_at=now,
            alive=True,
            grace=grace,
            version=version,
        )
        await self._store.workers.register_worker(info)

    async def beat_forever(self, stopping: Callable[[], bool], obey: Callable[[WorkerCommand], None]) -> None:
        """Renew the row until cancelled, and call `obey` with its column `command`."""
        while True:
            await asyncio.sleep(INTERVAL)
            state = WorkerState.DRAINING if stopping() else WorkerState.RUNNING
            try:
                hung, blocked = self._counts()
                command = await self._store.workers.beat_worker(self._id, state=state, hung=hung, blocked=blocked)
            except PerdureError as error:
                log.warning("worker heartbeat failed", worker=self._id, error=str(error))
                continue
            if command is not None:
                obey(command)

    async def mark_stopped(self) -> None:
        """Write that the worker has stopped."""
        try:
            hung, blocked = self._counts()
            await self._store.workers.beat_worker(self._id, state=WorkerState.STOPPED, hung=hung, blocked=blocked)
        except PerdureError as error:
            log.warning("the worker's row could not be marked as stopped", worker=self._id, error=str(error))
