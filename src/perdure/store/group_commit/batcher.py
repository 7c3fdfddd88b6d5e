"""Group commit: calls that arrive while a write is in progress share the next one.

No timer: the first call is written at once, so a lone caller waits for no other. Each caller is acknowledged after the commit
that holds its item. What a write is, and what its errors mean, is decided by a `Writer`.

With a second writer two writes may be in progress: callers that go step by step with each other (each waits for its own commit)
would otherwise all wait for the database, and then the database for all of them. The second one only helps: no caller waits for
its connection, and while it has none everything goes as if there were no second one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Hashable, Sequence
from typing import Any, Generic, NamedTuple

import structlog

from perdure.model.errors import StoreUnreachable
from perdure.store.group_commit.limits import MOST_ITEMS, MOST_TEXT
from perdure.store.group_commit.retry import TIME_LIMIT, Item, Result, RetryingWriter, Writer, blocked, unreachable

SECOND_WRITE_ITEMS = 16
"""Items that wait before a second write begins while the first is under way."""
FAST_ITEM = 50e-6
"""Seconds an item may take for a second write to be worth its commit: on a slow disk one large commit is better."""
RECONNECT_AFTER = 10.0
"""Seconds until a second connection that could not be opened is tried again."""

log = structlog.get_logger("perdure.store")


class _Call(NamedTuple, Generic[Item, Result]):
    """A caller's item. waits: also for the locks of other sessions."""

    item: Item
    future: asyncio.Future[Result]
    waits: bool


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
        time_limit: float = TIME_LIMIT,
    ) -> None:
        self._writer = writer
        self._first = RetryingWriter(writer, time_limit)
        self._second = None if second is None else RetryingWriter(second, time_limit)
        self._limit = limit
        self._queue: deque[_Call[Item, Result]] = deque()
        self._subjects: set[Hashable] = set()  # of the writes in progress
        self._writes: dict[RetryingWriter[Item, Result], asyncio.Task[Any]] = {}  # in progress
        self._starting = 0  # writes that have not taken any item yet
        self._fast = False  # the last write was
        self._connect_after = 0.0  # when to open the second connection
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def submit(self, item: Item) -> Result:
        """Write the item and return its result after its commit, or raise its refusal.

        A caller that is cancelled before the write of its item begins takes it back; later the item is written all the same.
        Raises StoreUnreachable if the connection is lost and stays so.
        """
        return await self._queued(item, waits=True)

    def _queued(self, item: Item, *, waits: bool) -> asyncio.Future[Result]:
        if self._closed:
            raise StoreUnreachable("the store is closed")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.append(_Call(item, future, waits))
        if self._first not in self._writes:
            self._start(self._first)
        elif self._second is not None and self._second not in self._writes and self._worth_a_second:
            if self._second.ready:
                self._start(self._second)
            else:
                self._connect_soon(self._second)
        return future

    async def submit_many(self, items: Sequence[Item]) -> list[Result | Exception]:
        """`submit` for each of these items: for each, in their order, its result or its refusal.

        Where nothing else is being written, they cost one answer together, and a caller that is cancelled takes none back.
        One that another session has locked must not keep the caller from what became of the others: it is not written, and
        its refusal is StoreUnreachable. `submit` waits for the lock.
        """
        subjects = set(map(self._writer.subject, items))
        busy = self._closed or self._writes or self._queue
        too_large = len(items) > self._limit or sum(map(self._writer.size, items)) > MOST_TEXT
        if busy or too_large or len(subjects) < len(items):
            # an exception that is no Exception comes from a cancellation, which ends this call as well
            calls = [self._queued(item, waits=False) for item in items]
            return await asyncio.gather(*calls, return_exceptions=True)  # type: ignore[return-value]
        task = asyncio.get_running_loop().create_task(self._write_together(items, subjects))
        self._writes[self._first] = task
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Write what was submitted, accept no more. Calling it twice is fine."""
        self._closed = True
        while going := [task for task in (*self._writes.values(), *self._tasks) if not task.done()]:
            await asyncio.wait(going)
        self._refuse_queue(StoreUnreachable("the store is closed"))  # only where a write was cancelled

    @property
    def _worth_a_second(self) -> bool:
        return self._fast and len(self._queue) >= SECOND_WRITE_ITEMS

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _start(self, writer: RetryingWriter[Item, Result]) -> None:
        self._starting += 1
        self._writes[writer] = asyncio.get_running_loop().create_task(self._write_queue(writer))

    async def _write_queue(self, writer: RetryingWriter[Item, Result]) -> None:
        """Write as long as something waits; the second one as long as it is worth it."""
        share = -(-len(self._queue) // self._starting)  # those that start together share what waits
        self._starting -= 1
        try:
            limit = min(share, self._limit)
            while batch := self._take(limit):
                connected = await self._write_batch(writer, batch)
                limit = self._limit
                if writer is self._second and not (connected and self._worth_a_second):
                    break
        finally:
            del self._writes[writer]
            if self._queue and not self._writes:  # what waited for the subjects of this write
                self._start(self._first)

    async def _write_batch(self, writer: RetryingWriter[Item, Result], batch: list[_Call[Item, Result]]) -> bool:
        """Write a batch and answer its callers; False if there is no connection."""
        items = [call.item for call in batch]
        results: Sequence[Result | Exception | None] | None = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            results = await writer.write(items)
            self._fast = loop.time() - began < FAST_ITEM * len(items)
        except Exception as error:  # noqa: BLE001  it belongs to the callers
            results = [error] * len(items)
        finally:
            self._subjects.difference_update(map(self._writer.subject, items))
            if results is None:
                results = [unreachable(asyncio.CancelledError("it was cancelled"), unknown=True)] * len(items)
            for call, result in zip(batch, results, strict=True):
                self._answer(call, result)
        if not isinstance(results[-1], StoreUnreachable):
            return True
        if writer is self._first:  # those who queue behind need not wait as long again
            self._refuse_queue(results[-1])
        return False

    async def _write_together(self, items: Sequence[Item], subjects: set[Hashable]) -> list[Result | Exception]:
        """Write items that one caller brought together."""
        self._subjects |= subjects
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            results = await self._first.write(items)
            self._fast = loop.time() - began < FAST_ITEM * len(items)
        except Exception as error:  # noqa: BLE001  it belongs to the caller
            results = [error] * len(items)
        finally:
            self._subjects -= subjects
            del self._writes[self._first]
            if self._queue:  # what was submitted meanwhile
                self._start(self._first)
        return list(map(self._final, results))

    def _final(self, result: Result | Exception | None) -> Result | Exception:
        if result is None:
            return blocked()
        return self._writer.refusal(result) if isinstance(result, Exception) else result

    def _connect_soon(self, second: RetryingWriter[Item, Result]) -> None:
        """Have the second writer connect, in the background."""
        now = asyncio.get_running_loop().time()
        if now >= self._connect_after:
            self._connect_after = now + RECONNECT_AFTER
            self._do(self._connect(second))

    async def _connect(self, second: RetryingWriter[Item, Result]) -> None:
        try:
            await second.connect()
        except Exception as error:  # noqa: BLE001  no caller depends on it
            log.info("no second connection for writes; one does it all", error=str(error) or type(error).__name__)

    def _take(self, limit: int) -> list[_Call[Item, Result]]:
        batch: list[_Call[Item, Result]] = []
        later: list[_Call[Item, Result]] = []
        queue = self._queue
        subjects = self._subjects
        text = 0
        while queue and len(batch) < limit:
            call = queue.popleft()
            if call.future.done():  # its caller was cancelled
                continue
            subject = self._writer.subject(call.item)
            if subject in subjects:
                later.append(call)
                continue
            text += self._writer.size(call.item)
            if batch and text > MOST_TEXT:
                later.append(call)
                break
            subjects.add(subject)
            batch.append(call)
        queue.extendleft(reversed(later))
        return batch

    def _refuse_queue(self, error: Exception) -> None:
        while self._queue:
            self._answer(self._queue.popleft(), unreachable(error.__cause__ or error, unknown=False))

    def _answer(self, call: _Call[Item, Result], result: Result | Exception | None) -> None:
        if result is None and call.waits:
            self._do(self._write_separately(call))
            return
        if call.future.done():
            return
        answer = self._final(result)
        if isinstance(answer, Exception):
            call.future.set_exception(answer)
        else:
            call.future.set_result(answer)

    async def _write_separately(self, call: _Call[Item, Result]) -> None:
        try:
            result: Result | Exception = await self._writer.write_separately(call.item)
        except Exception as error:  # noqa: BLE001  it belongs to the caller
            result = error
        self._answer(call, result)
