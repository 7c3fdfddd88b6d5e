"""Waiting until a job has moved on, on any store.

One listener and one read at a time serve all who wait for jobs of a store. If each of them read its own job at every hint, a
thousand that wait would read a thousand jobs at each event of any job.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import NamedTuple
from uuid import UUID

from perdure.model.jobs import Head
from perdure.store.protocol import Listener, Store

MOST_IDS = 1000
"""Of one read."""
REST = 20e-6
"""Seconds without a read after one, for each job that was read: reading takes a small part of the time, however many wait."""
_SHORTEST_REST = 0.001
_SHORTEST_POLL, _LONGEST_POLL = 0.01, 0.5


async def moved_on(store: Store, job_id: UUID, *, after: int | None = None) -> None:
    """Return once the job has ended or does not exist, and where `after` is given also once it has a version above that.

    Raises what reading raises.
    """
    key = store, asyncio.get_running_loop()
    reader = _READERS.get(key)
    if reader is None:
        reader = _READERS[key] = _Reader(*key)
    await reader.wait(job_id, after)


class _Wait(NamedTuple):
    job_id: UUID
    after: int | None
    over: asyncio.Future[None]

    def fits(self, head: Head | None) -> bool:
        return head is None or head.status.terminal or (self.after is not None and head.version > self.after)


class _Reader:
    """Reads the heads of the jobs that are waited for; it lives as long as any is."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._waits: dict[asyncio.Future[None], _Wait] = {}
        self._joined = asyncio.Event()
        # a context of its own: it does not belong to the attempt or the trace of the first who waits
        self._task = loop.create_task(self._run(), context=Context())

    async def wait(self, job_id: UUID, after: int | None) -> None:
        over = self._loop.create_future()
        self._waits[over] = _Wait(job_id, after, over)
        self._joined.set()
        try:
            await over
        finally:
            self._waits.pop(over, None)
            if not self._waits:
                self._leave()
                self._task.cancel()

    async def _run(self) -> None:
        try:
            async with self._store.hints.listen("news") as news:
                pause = _SHORTEST_POLL
                while await self._read():
                    pause = _SHORTEST_POLL if await self._hinted(news, pause) else min(pause * 2, _LONGEST_POLL)
                self._leave()
        except Exception as error:  # noqa: BLE001  it is raised in those who wait
            self._leave()
            for over in self._waits:
                if not over.done():
                    over.set_exception(error)
        finally:
            for over in self._waits:
                over.cancel()

    async def _read(self) -> bool:
        """Read once, and end the waits that are over. False if none is left."""
        self._joined.clear()
        asked = list(self._waits.values())  # who comes during the read may need what is committed after it
        ids = list({wait.job_id for wait in asked})
        heads: dict[UUID, Head] = {}
        for start in range(0, len(ids), MOST_IDS):
            heads |= await self._store.jobs.heads(ids[start : start + MOST_IDS])
        for wait in asked:
            if (
                wait.fits(heads.get(wait.job_id))
                and self._waits.pop(wait.over, None) is not None
                and not wait.over.done()
            ):
                wait.over.set_result(None)
        rest = REST * len(ids)
        if self._waits and rest >= _SHORTEST_REST:
            await asyncio.sleep(rest)
        return bool(self._waits)

    async def _hinted(self, news: Listener, pause: float) -> bool:
        """Wait for a hint or for another who waits; False after `pause` seconds without either."""
        hint = asyncio.ensure_future(news.wait(pause))
        joined = asyncio.ensure_future(self._joined.wait())
        try:
            done, _ = await asyncio.wait({hint, joined}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hint.cancel()
            joined.cancel()
        return joined in done or (hint in done and hint.result())

    def _leave(self) -> None:
        if _READERS.get((self._store, self._loop)) is self:
            del _READERS[self._store, self._loop]


_READERS: dict[tuple[Store, asyncio.AbstractEventLoop], _Reader] = {}
