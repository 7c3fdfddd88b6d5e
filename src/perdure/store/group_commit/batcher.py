"""Group commit: calls that arrive while a write is in flight share the next one.

No timer: the first call is written at once, so a lone caller waits for nobody. Each caller is acknowledged after the commit
that holds its item. What a write is, and what its errors mean, is the business of a `Writer`.

With a second writer two writes may be in flight: callers that go step by step with each other (each waits for its own commit)
would otherwise all wait for the database, and then the database for all of them. The second one only helps: nobody waits for
its connection, and while it has none everything goes as if there were no second one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Hashable, Sequence
from typing import Any, Generic

import structlog

from perdure.model.errors import StoreUnreachable
from perdure.store.group_commit.limits import MOST_ITEMS, MOST_TEXT
from perdure.store.group_commit.retry import PATIENCE, Insistent, Item, Result, Writer, unreachable

CROWD = 16
"""Items that wait before a second write takes off beside the first."""
SWIFT = 50e-6
"""Seconds an item may take for a second write to be worth its commit: on a slow disk one large commit is better."""
TRY_AGAIN = 10.0
"""Seconds until a second connection that could not be had is asked for again."""

log = structlog.get_logger("perdure.store")


class Batcher(Generic[Item, Result]):
    """One operation of a store, batched. Used from one event loop.

    second: a writer of the same operation over a connection of its own.
    """

    def __init__(
        self,
        writer: Writer[Item, Result],
        second: Writer[Item, Result] | None = None,
        *,
        limit: int = MOST_ITEMS,
        patience: float = PATIENCE,
    ) -> None:
        self._writer = writer
        self._first = Insistent(writer, patience)
        self._second = None if second is None else Insistent(second, patience)
        self._limit = limit
        self._queue: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._subjects: set[Hashable] = set()  # in flight
        self._flying: dict[Insistent[Item, Result], asyncio.Task[None]] = {}
        self._boarding = 0  # flights that have not taken anything yet
        self._swift = False  # the last one was
        self._ask_again = 0.0  # when to ask for the second connection
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def submit(self, item: Item) -> Result:
        """Write the item and return its result after its commit, or raise its refusal.

        A caller that is cancelled before its item is in flight takes it back; later the item is written all the same.
        Raises StoreUnreachable if the connection is lost and stays so.
        """
        if self._closed:
            raise StoreUnreachable("the store is closed")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.append((item, future))
        if self._first not in self._flying:
            self._take_off(self._first)
        elif self._second is not None and self._second not in self._flying and self._worth_a_second:
            if self._second.ready:
                self._take_off(self._second)
            else:
                self._ask_for(self._second)
        return await future

    async def close(self) -> None:
        """Write what was submitted, accept no more. Calling it twice is fine."""
        self._closed = True
        while going := [task for task in (*self._flying.values(), *self._tasks) if not task.done()]:
            await asyncio.wait(going)
        self._refuse_queue(StoreUnreachable("the store is closed"))  # only where a flight was cancelled

    @property
    def _worth_a_second(self) -> bool:
        return self._swift and len(self._queue) >= CROWD

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take_off(self, writer: Insistent[Item, Result]) -> None:
        self._boarding += 1
        self._flying[writer] = asyncio.get_running_loop().create_task(self._fly(writer))

    async def _fly(self, writer: Insistent[Item, Result]) -> None:
        """Write as long as something waits; the second one as long as it is worth it."""
        share = -(-len(self._queue) // self._boarding)  # those that take off together share what waits
        self._boarding -= 1
        try:
            limit = min(share, self._limit)
            while batch := self._take(limit):
                landed = await self._carry(writer, batch)
                limit = self._limit
                if writer is self._second and not (landed and self._worth_a_second):
                    break
        finally:
            del self._flying[writer]
            if self._queue and not self._flying:  # what waited for the subjects of this flight
                self._take_off(self._first)

    async def _carry(self, writer: Insistent[Item, Result], batch: list[tuple[Item, asyncio.Future[Result]]]) -> bool:
        """Write a batch and answer its callers; False if there is no connection."""
        items = [item for item, _ in batch]
        results: Sequence[Result | Exception | None] | None = None
        loop = asyncio.get_running_loop()
        took_off = loop.time()
        try:
            results = await writer.write(items)
            self._swift = loop.time() - took_off < SWIFT * len(items)
        except Exception as error:  # noqa: BLE001  it belongs to the callers
            results = [error] * len(items)
        finally:
            self._subjects.difference_update(map(self._writer.subject, items))
            if results is None:
                results = [unreachable(asyncio.CancelledError("it was cancelled"), unknown=True)] * len(items)
            for (item, future), result in zip(batch, results, strict=True):
                self._answer(item, future, result)
        if not isinstance(results[-1], StoreUnreachable):
            return True
        if writer is self._first:  # those who queue behind need not wait as long again
            self._refuse_queue(results[-1])
        return False

    def _ask_for(self, second: Insistent[Item, Result]) -> None:
        """Have the second writer connect, in the background."""
        now = asyncio.get_running_loop().time()
        if now >= self._ask_again:
            self._ask_again = now + TRY_AGAIN
            self._do(self._connect(second))

    async def _connect(self, second: Insistent[Item, Result]) -> None:
        try:
            await second.get_ready()
        except Exception as error:  # noqa: BLE001  nobody depends on it
            log.info("no second connection for writes; one does it all", error=str(error) or type(error).__name__)

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
            self._do(self._write_aside(item, future))
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
