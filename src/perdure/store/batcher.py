"""Group commit: calls that arrive while a write is in flight share the next one.

No timer: the first call is written at once, so a lone caller waits for nobody. Each caller is acknowledged after the commit
that holds its item. What a write is, and what its errors mean, is the business of a `Writer`.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Generic, TypeVar

from perdure.model.errors import StoreUnreachable
from perdure.store.sizes import MOST_ITEMS, MOST_TEXT

Item = TypeVar("Item")
Result = TypeVar("Result")

PATIENCE = 10.0
"""Seconds of trying to get a lost connection back before callers are told."""

CLASHES = 8
"""How often one item may lose against others (deadlock, serialization) before its caller is told."""


class Trouble(Enum):
    """What an error of a write means."""

    LOST = "the connection broke: whether the write was committed is unknown"
    AWAY = "there is no connection: nothing was written"
    CLASH = "another transaction was preferred: nothing was written, try again"
    BLOCKED = "a stranger holds a lock: nothing was written"
    OTHER = "the write itself is wrong: nothing was written"


class Writer(ABC, Generic[Item, Result]):
    """How a batcher writes. Its calls never overlap, `write_aside` excepted."""

    @abstractmethod
    async def write(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        """Commit all items at once and return one result each, in their order; an exception there is that item's own
        refusal. If it raises, nothing was written, unless the trouble is LOST."""

    @abstractmethod
    async def look(self, items: Sequence[Item]) -> Sequence[Result | Exception | None]:
        """After a lost connection: reconnect, make sure that the old one can write no more, and say what became of each
        item. None = it was not written."""

    @abstractmethod
    async def write_aside(self, item: Item) -> Result:
        """Write one item over a connection of its own, with patience for the lock that stands in its way."""

    @abstractmethod
    def subject(self, item: Item) -> Hashable:
        """Items of one subject never share a write: one statement changes a row once."""

    @abstractmethod
    def size(self, item: Item) -> int:
        """About how many characters of text it brings: they bound a write as well."""

    @abstractmethod
    def trouble(self, error: Exception) -> Trouble:
        """What an error raised by this writer means."""

    @abstractmethod
    def refusal(self, error: Exception) -> Exception:
        """The error as callers know it."""


class Batcher(Generic[Item, Result]):
    """One operation of a store, batched. Used from one event loop."""

    def __init__(self, writer: Writer[Item, Result], *, limit: int = MOST_ITEMS, patience: float = PATIENCE) -> None:
        self._writer = writer
        self._limit = limit
        self._patience = patience
        self._queue: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._flushing: asyncio.Task[None] | None = None
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
        if self._flushing is None:
            self._flushing = loop.create_task(self._flush())
        return await future

    async def close(self) -> None:
        """Write what was submitted, accept no more. Calling it twice is fine."""
        self._closed = True
        while self._flushing is not None or self._asides:
            waiting = {*self._asides, *([self._flushing] if self._flushing else ())}
            await asyncio.wait(waiting)

    async def _flush(self) -> None:
        try:
            while batch := self._take():
                items = [item for item, _ in batch]
                try:
                    results: Sequence[Result | Exception | None] = await self._write(items)
                except Exception as error:  # noqa: BLE001  it belongs to the callers
                    results = [error] * len(items)
                    if isinstance(error, StoreUnreachable):  # those who queue behind need not wait as long again
                        self._refuse_queue(error)
                for (item, future), result in zip(batch, results, strict=True):
                    self._answer(item, future, result)
        finally:
            self._flushing = None

    def _refuse_queue(self, error: Exception) -> None:
        while self._queue:
            item, future = self._queue.popleft()
            self._answer(item, future, _unreachable(error.__cause__ or error, unknown=False))

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

    def _take(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        subjects: set[Hashable] = set()
        later: list[tuple[Item, asyncio.Future[Result]]] = []
        queue = self._queue
        text = 0
        while queue and len(batch) < self._limit:
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

    async def _write(self, items: list[Item]) -> Sequence[Result | Exception | None]:
        """One result per item; None = it is blocked and must be written aside."""
        try:
            return await self._writer.write(items)
        except Exception as error:  # noqa: BLE001  trouble() judges it
            match self._writer.trouble(error):
                case Trouble.LOST | Trouble.AWAY as gone:
                    return await self._recover(items, gone)
                case Trouble.CLASH if len(items) > 1:
                    await _pause(0)
                    try:
                        return await self._writer.write(items)
                    except Exception as second:  # noqa: BLE001
                        trouble = self._writer.trouble(second)
                        if trouble in (Trouble.LOST, Trouble.AWAY):
                            return await self._recover(items, trouble)
                case Trouble.BLOCKED if len(items) == 1:
                    return [None]
                case Trouble.OTHER if len(items) == 1:
                    return [error]
                case _:
                    pass
        return await self._write_singly(items)

    async def _write_singly(self, items: Sequence[Item]) -> list[Result | Exception | None]:
        results: list[Result | Exception | None] = []
        for item in items:
            result = await self._write_one(item)
            results.append(result)
            if isinstance(result, StoreUnreachable):  # the others need not wait as long each
                cause = result.__cause__ or result
                return results + [_unreachable(cause, unknown=False) for _ in items[len(results) :]]
        return results

    async def _write_one(self, item: Item) -> Result | Exception | None:
        for clash in range(CLASHES):
            try:
                return (await self._writer.write([item]))[0]
            except Exception as error:  # noqa: BLE001
                trouble = self._writer.trouble(error)
                if trouble in (Trouble.LOST, Trouble.AWAY):
                    try:
                        return (await self._recover([item], trouble))[0]
                    except StoreUnreachable as gone:  # a result: its neighbours may have been written
                        return gone
                if trouble is Trouble.BLOCKED:
                    return None
                if trouble is Trouble.OTHER or clash == CLASHES - 1:
                    return error
            await _pause(clash)
        raise AssertionError("unreachable")

    async def _write_aside(self, item: Item, future: asyncio.Future[Result]) -> None:
        try:
            result: Result | Exception = await self._writer.write_aside(item)
        except Exception as error:  # noqa: BLE001  it belongs to the caller
            result = error
        self._answer(item, future, result)

    async def _recover(self, items: list[Item], trouble: Trouble) -> Sequence[Result | Exception | None]:
        """Reconnect, look which items were written, and write the others."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        unknown = trouble is Trouble.LOST
        results: list[Result | Exception | None] = [None] * len(items)
        left = list(range(len(items)))
        delay = 0.02
        while True:
            try:
                found = await self._writer.look([items[i] for i in left])
                for i, result in zip(left, found, strict=True):
                    results[i] = result
                left = [i for i in left if results[i] is None]
                if left:
                    written = await self._writer.write([items[i] for i in left])
                    for i, result in zip(left, written, strict=True):
                        results[i] = result
                return results
            except Exception as error:
                trouble = self._writer.trouble(error)
                if trouble not in (Trouble.LOST, Trouble.AWAY):
                    break
                unknown = unknown or trouble is Trouble.LOST
                if loop.time() > deadline:
                    raise _unreachable(error, unknown) from error
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, 1.0)
        for i, result in zip(left, await self._write_singly([items[i] for i in left]), strict=True):
            results[i] = result
        return results


def _unreachable(error: BaseException, unknown: bool) -> StoreUnreachable:
    why = str(error) or type(error).__name__
    if unknown:
        return StoreUnreachable(
            f"the connection to the database was lost during a write and cannot be restored ({why}): "
            "whether it was committed is unknown",
            hint="look at the job before you try again",
        )
    return StoreUnreachable(f"the database does not answer ({why}); nothing was written", hint="try again later")


async def _pause(clash: int) -> None:
    await asyncio.sleep(random.uniform(0.5, 1.0) * min(0.005 * 2**clash, 0.2))
