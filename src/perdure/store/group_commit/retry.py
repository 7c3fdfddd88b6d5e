"""The writers of a group commit, and the retries of failed calls to the database.

`Retries` has the rules for one call: which failures are retried, how often and for how long. A `Writer` knows one operation of
one store and what its errors mean. A `RetryingWriter` repeats calls that lost against other transactions, restores a lost
connection, and finds out what was written.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Sequence
from enum import Enum
from typing import Generic, TypeVar

from perdure.model.errors import StoreUnreachable

Item = TypeVar("Item")
Result = TypeVar("Result")

TIME_LIMIT = 10.0
"""Seconds for which a lost connection is opened again before the caller gets an error."""

CLASHES = 8
"""How often one call may lose against others (deadlock, serialization) before its caller gets an error."""


class Failure(Enum):
    """What an error of a call to the database means."""

    LOST = "the connection broke: whether the write was committed is unknown"
    AWAY = "there is no connection: nothing was written"
    CLASH = "another transaction had precedence: nothing was written, it can be repeated"
    BLOCKED = "another session holds a lock: nothing was written"
    OTHER = "the write itself is wrong: nothing was written"


UNCONNECTED = (Failure.LOST, Failure.AWAY)


class Retries:
    """What is left of one call's retries. The time limit begins now.

    blocks: how often a lock may be waited for again. even_late: failures of which the first is retried although the time is up: a
    connection that gave no answer may have taken all of it. pauses: the first and the longest while there is no connection.
    """

    def __init__(
        self,
        time_limit: float = TIME_LIMIT,
        *,
        clashes: int = CLASHES,
        blocks: int = 0,
        even_late: Collection[Failure] = (),
        pauses: tuple[float, float] = (0.02, 1.0),
    ) -> None:
        self._deadline = asyncio.get_running_loop().time() + time_limit
        self._clashes_left = clashes
        self._blocks_left = blocks
        self._even_late = even_late
        self._reconnect_pause, self._longest_pause = pauses
        self._clash_pause = 0.005

    async def again(self, failure: Failure) -> bool:
        """Wait as long as this failure needs, then return True; False if the call is not to be repeated."""
        match failure:
            case Failure.LOST | Failure.AWAY:
                if failure in self._even_late:
                    self._even_late = ()
                elif asyncio.get_running_loop().time() >= self._deadline:
                    return False
                pause, self._reconnect_pause = (
                    self._reconnect_pause,
                    min(self._reconnect_pause * 2, self._longest_pause),
                )
            case Failure.CLASH:
                self._clashes_left -= 1
                if self._clashes_left <= 0:
                    return False
                pause, self._clash_pause = self._clash_pause, min(self._clash_pause * 2, 0.2)
            case Failure.BLOCKED:
                self._blocks_left -= 1
                return self._blocks_left >= 0
            case _:
                return False
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        return True


class Writer(ABC, Generic[Item, Result]):
    """How a batcher writes. Its calls never overlap, `write_separately` excepted."""

    @property
    def ready(self) -> bool:
        """Whether a write would find its connection open."""
        return True

    async def connect(self) -> None:
        """Open the connection; raises what keeps it from that."""

    @abstractmethod
    async def write(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        """Commit all items at once and return one result each, in their order; an exception there is that item's own
        refusal. If it raises, nothing was written, unless the failure is LOST."""

    @abstractmethod
    async def find_written(self, items: Sequence[Item]) -> Sequence[Result | Exception | None]:
        """After a lost connection: reconnect, make sure that the old one can write no more, and return what became of each
        item. None = it was not written."""

    @abstractmethod
    async def write_separately(self, item: Item) -> Result:
        """Write one item over another connection, waiting for the lock that blocks it."""

    @abstractmethod
    def subject(self, item: Item) -> Hashable:
        """Items of one subject never share a write: one statement changes a row once."""

    @abstractmethod
    def size(self, item: Item) -> int:
        """About how many characters of text it brings: they bound a write as well."""

    @abstractmethod
    def failure(self, error: Exception) -> Failure:
        """What an error raised by this writer means."""

    @abstractmethod
    def refusal(self, error: Exception) -> Exception:
        """The error as callers know it."""


class RetryingWriter(Generic[Item, Result]):
    """A writer that repeats what can be repeated."""

    def __init__(self, writer: Writer[Item, Result], time_limit: float) -> None:
        self._writer = writer
        self._time_limit = time_limit

    @property
    def ready(self) -> bool:
        """See `Writer`."""
        return self._writer.ready

    async def connect(self) -> None:
        """See `Writer`."""
        await self._writer.connect()

    async def write(self, items: Sequence[Item]) -> Sequence[Result | Exception | None]:
        """Commit the items; one result per item, None = it is blocked and must be written separately.

        Raises StoreUnreachable if the connection is lost and stays so.
        """
        retries: Retries | None = None
        while True:
            try:
                return await self._writer.write(items)
            except Exception as error:  # noqa: BLE001  failure() judges it
                retries = retries or Retries(clashes=2)  # once more as a whole, then one by one
                failure = self._writer.failure(error)
                if failure in UNCONNECTED:
                    return await self._recover(items, failure)
                if len(items) == 1 and failure in (Failure.BLOCKED, Failure.OTHER):
                    return [None if failure is Failure.BLOCKED else error]
                if len(items) == 1 or not await retries.again(failure):
                    return await self._write_singly(items)

    async def _write_singly(self, items: Sequence[Item]) -> list[Result | Exception | None]:
        results: list[Result | Exception | None] = []
        for item in items:
            result = await self._write_one(item)
            results.append(result)
            if isinstance(result, StoreUnreachable):  # the others need not wait as long each
                cause = result.__cause__ or result
                return results + [unreachable(cause, unknown=False) for _ in items[len(results) :]]
        return results

    async def _write_one(self, item: Item) -> Result | Exception | None:
        retries = Retries()
        while True:
            try:
                return (await self._writer.write([item]))[0]
            except Exception as error:  # noqa: BLE001  as above
                failure = self._writer.failure(error)
                if failure in UNCONNECTED:
                    try:
                        return (await self._recover([item], failure))[0]
                    except StoreUnreachable as gone:  # a result: its neighbours may have been written
                        return gone
                if failure is Failure.BLOCKED:
                    return None
                if not await retries.again(failure):
                    return error

    async def _recover(self, items: Sequence[Item], failure: Failure) -> Sequence[Result | Exception | None]:
        """Reconnect, find out which items were written, and write the others."""
        retries = Retries(self._time_limit)
        unknown = failure is Failure.LOST
        results: list[Result | Exception | None] = [None] * len(items)
        left = list(range(len(items)))
        while True:
            try:
                found = await self._writer.find_written([items[i] for i in left])
                for i, result in zip(left, found, strict=True):
                    results[i] = result
                left = [i for i in left if results[i] is None]
                if left:
                    written = await self._writer.write([items[i] for i in left])
                    for i, result in zip(left, written, strict=True):
                        results[i] = result
                return results
            except Exception as error:
                failure = self._writer.failure(error)
                if failure not in UNCONNECTED:
                    break
                unknown = unknown or failure is Failure.LOST
                if not await retries.again(failure):
                    raise unreachable(error, unknown) from error
        for i, result in zip(left, await self._write_singly([items[i] for i in left]), strict=True):
            results[i] = result
        return results


def unreachable(error: BaseException, unknown: bool) -> StoreUnreachable:
    """The error that callers get if the database does not answer. unknown: what they wrote may have been committed."""
    why = str(error) or type(error).__name__
    if unknown:
        return StoreUnreachable(
            f"the connection to the database was lost during a write and cannot be restored ({why}): "
            "whether it was committed is unknown",
            hint="read the job before you repeat the call",
        )
    return StoreUnreachable(f"the database does not answer ({why}); nothing was written", hint="try again later")


def blocked() -> StoreUnreachable:
    """The error of a caller that does not wait for the locks of other sessions."""
    return StoreUnreachable("another session keeps a lock on this; nothing was written", hint="try again later")
