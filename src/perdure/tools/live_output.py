"""What a running CLI writes, stored in chunks while it runs, so that other processes can follow it."""

from __future__ import annotations

import asyncio
from typing import Self

import structlog

from perdure.model.current_attempt import attempt_ids
from perdure.model.errors import LeaseLost, PerdureError
from perdure.model.jobs import Lease
from perdure.model.task_records import OutputChunk
from perdure.store.blobs.threads import in_thread
from perdure.store.protocol import Store
from perdure.tools.more_output import MoreOutput

CHUNK_BYTES = 64 * 1024
MAX_BYTES = 8 * 1024 * 1024
"""Of one run: what comes after it is compressed, and stored as a file when the run has ended."""
INTERVAL = 0.5
"""Seconds at most between what was written and its commit."""

log = structlog.get_logger("perdure.tools")


class LiveOutput:
    """Takes what a run writes; `async with` it stores the rest at the end. more: takes what is too much."""

    def __init__(self, store: Store, lease: Lease, more: MoreOutput) -> None:
        self._store = store
        self._lease = lease
        self._more = more
        self._lost = False
        self._waiting: list[tuple[str, bytearray]] = []
        self._seq = 0
        self._size = 0
        self._flusher: asyncio.Task[None] | None = None

    async def add(self, stream: str, data: bytes) -> None:
        """Take a part of a stream."""
        if self._lost:
            return
        left = max(0, MAX_BYTES - self._size)
        if too_much := data[left:]:
            await self._add_more(stream, too_much)
        data = data[:left]
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
            self._lost = True  # the run is being stopped; no more of it is stored
        except PerdureError as error:  # the run matters more than what is shown of it
            log.warning("output of a run not stored", **attempt_ids(), error=str(error))

    async def _add_more(self, stream: str, data: bytes) -> None:
        try:
            await in_thread(lambda _: self._more.add(stream, data))
        except OSError as error:  # the disk may be full; the run matters more
            self._lost = True
            log.warning("output of a run not stored", **attempt_ids(), error=str(error))
