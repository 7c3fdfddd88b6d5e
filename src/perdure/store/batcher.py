"""Group commit: calls that arrive while a write is in flight share the next one.

No timer: the first call is written at once, so a lone caller waits for nobody. Each caller is acknowledged after the commit
that holds its item. What a write is, and what its errors mean, is the business of a `Writer`.

Given two writers, two writes may be in flight: callers that go step by step with each other (each waits for its own commit)
would otherwise all wait for the database, and then the database for all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Generic

from perdure.model.errors import StoreUnreachable
from perdure.store.sizes import MOST_ITEMS, MOST_TEXT
from perdure.store.writing import PATIENCE, Insistent, Item, Result, Writer, unreachable

CROWD = 16
"""Items that wait before a second write takes off beside the first."""
SWIFT = 50e-6
"""Seconds an item may take for a second write to be worth its commit: on a slow disk one large commit is better."""


class Batcher(Generic[Item, Result]):
    """One operation of a store, batched. Used from one event loop.

    writers: of the same operation, each over a connection of its own; as many writes may be in flight.
    """

    def __init__(self, *writers: Writer[Item, Result], limit: int = MOST_ITEMS, patience: float = PATIENCE) -> None:
        self._writer = writers[0]
        self._idle = [Insistent(writer, patience) for writer in reversed(writers)]
        self._writers = len(writers)
        self._limit = limit
        self._queue: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._subjects: set[Hashable] = set()  # in flight
        self._flights: set[asyncio.Task[None]] = set()
        self._boarding = 0  # flights that have not taken anything yet
        self._swift = False
        self._asides: set[asyncio.Task[None]] = set()
        self._closed = False

    async def submit(self, item: Item) -> Result:
        """Write the item and return its result after its commit, or raise its refusal.

        A caller that is cancelled before its item is in flight takes it back; later the item is written all the same.
        Raises StoreUnreachable if the connection is lost and stays so.
        """
        if self._closed:
            raise StoreUnreachable("the store is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._queue.append((item, future))
        idle = len(self._idle)
        if idle == self._writers or (idle and self._swift and len(self._queue) >= CROWD):
            self._boarding += 1
            flight = loop.create_task(self._fly(self._idle.pop()))
            self._flights.add(flight)
            flight.add_done_callback(self._flights.discard)
        return await future

    async def close(self) -> None:
        """Write what was submitted, accept no more. Calling it twice is fine."""
        self._closed = True
        while self._flights or self._asides:
            await asyncio.wait({*self._flights, *self._asides})

    async def _fly(self, writer: Insistent[Item, Result]) -> None:
        """Write until nothing waits."""
        loop = asyncio.get_running_loop()
        share = -(-len(self._queue) // self._boarding)  # those that take off together share what waits
        self._boarding -= 1
        try:
            while batch := self._take(min(share, self._limit)):
                share = self._limit
                items = [item for item, _ in batch]
                took_off = loop.time()
                try:
                    results: Sequence[Result | Exception | None] = await writer.write(items)
                except Exception as error:  # noqa: BLE001  it belongs to the callers
                    results = [error] * len(items)
                    if isinstance(error, StoreUnreachable):  # those who queue behind need not wait as long again
                        self._refuse_queue(error)
                self._swift = loop.time() - took_off < SWIFT * len(items)
                self._subjects.difference_update(map(self._writer.subject, items))
                for (item, future), result in zip(batch, results, strict=True):
                    self._answer(item, future, result)
        finally:
            self._idle.append(writer)

    def _take(self, limit: int) -> list[tuple[Item, asyncio.Future[Result]]]:
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        later: list[tuple[Item, asyncio.Future[Result]]] = []
        queue = self._queue
        subjects = self._subjects
        text = 0
        while queue and len(batch) < limit:
            entry = queue.popleft()
            if entry[1].done():  # its caller was cancelled
                continue
            subject = self._writer.subject(entry[0])
            if subject in subjects:
                later.append(entry)
                continue
            text += self._writer.size(entry[0])
            if batch and text > MOST_TEXT:
                later.append(entry)
                break
            subjects.add(subject)
            batch.append(entry)
        queue.extendleft(reversed(later))
        return batch

    def _refuse_queue(self, error: Exception) -> None:
        while self._queue:
            item, future = self._queue.popleft()
            self._answer(item, future, unreachable(error.__cause__ or error, unknown=False))

    def _answer(self, item: Item, future: asyncio.Future[Result], result: Result | Exception | None) -> None:
        if result is None:
            aside = asyncio.get_running_loop().create_task(self._write_aside(item, future))
            self._asides.add(aside)
            aside.add_done_callback(self._asides.discard)
        elif future.done():
            return
        elif isinstance(result, Exception):
            future.set_exception(self._writer.refusal(result))
        else:
            future.set_result(result)

    async def _write_aside(self, item: Item, future: asyncio.Future[Result]) -> None:
        try:
            result: Result | Exception = await self._writer.write_aside(item)
        except Exception as error:  # noqa: BLE001  it belongs to the caller
            result = error
        self._answer(item, future, result)
