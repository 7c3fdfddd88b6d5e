"""What a running CLI writes, stored in chunks while it runs, so that other processes can follow it."""

from __future__ import annotations

import asyncio
from typing import Self

import structlog

from perdure.model.current_attempt import attempt_ids
from perdure.model.errors import LeaseLost, PerdureError
from perdure.model.jobs import Lease
from perdure.model.task_records import OutputChunk
from perdure.store.protocol import Store

CHUNK_BYTES = 64 * 1024
MAX_BYTES = 8 * 1024 * 1024
"""Of one run: what comes after it is not stored; head and tail are in the record of the run all the same."""
INTERVAL = 0.5
"""Seconds at most between what was written and its commit."""

log = structlog.get_logger("perdure.tools")


class LiveOutput:
    """Takes what a run writes; `async with` it stores the rest at the end."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store = store
        self._lease = lease
        self._waiting: list[tuple[str, bytearray]] = []
        self._seq = 0
        self._size = 0
        self._flusher: asyncio.Task[None] | None = None

    async def add(self, stream: str, data: bytes) -> None:
        """Take a part of a stream."""
        data = data[: max(0, MAX_BYTES - self._size)]
        self._size += len(data)
        if not data:
            return
        if self._waiting and self._waiting[-1][0] == stream and len(self._waiting[-1][1]) < CHUNK_BYTES:
            self._waiting[-1][1].extend(data)
        else:
            self._waiting.append((stream, bytearray(data)))

    async def __aenter__(self) -> Self:
        self._flusher = asyncio.create_task(self._flush_often())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._flusher is not None:
            self._flusher.cancel()
            await asyncio.gather(self._flusher, return_exceptions=True)
        await self._flush()

    async def _flush_often(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            await self._flush()

    async def _flush(self) -> None:
        if not self._waiting:
            return
        taken, self._waiting = self._waiting, []
        chunks = []
        for stream, data in taken:
            self._seq += 1
            chunks.append(OutputChunk(self._lease.attempt, self._seq, stream, bytes(data)))
        try:
            await self._store.tool_runs.append_output(self._lease, chunks)
        except LeaseLost:
            self._size = MAX_BYTES  # the run is being stopped; no more of it is stored
        except PerdureError as error:  # the run matters more than what is shown of it
            log.warning("output of a run not stored", **attempt_ids(), error=str(error))
