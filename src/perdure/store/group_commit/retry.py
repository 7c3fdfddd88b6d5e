"""What a group commit writes with, and what is done when it cannot.

A `Writer` knows one operation of one store and what its errors mean; an `Insistent` one does not give up on the first of them:
it tries again what lost against others, restores a lost connection, and finds out what had been written.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Generic, TypeVar

from perdure.model.errors import StoreUnreachable

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

    @property
    def ready(self) -> bool:
        """Whether a write would find its connection open."""
        return True

    async def get_ready(self) -> None:
        """Open the connection; raises whatever keeps it from that."""

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


class Insistent(Generic[Item, Result]):
    """A writer that does not give up."""

    def __init__(self, writer: Writer[Item, Result], patience: float) -> None:
        self._writer = writer
        self._patience = patience

    @property
    def ready(self) -> bool:
        """See `Writer`."""
        return self._writer.ready

    async def get_ready(self) -> None:
        """See `Writer`."""
        await self._writer.get_ready()

    async def write(self, items: list[Item]) -> Sequence[Result | Exception | None]:
        """Commit the items; one result per item, None = it is blocked and must be written aside.

        Raises StoreUnreachable if the connection is lost and stays so.
        """
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
                return results + [unreachable(cause, unknown=False) for _ in items[len(results) :]]
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
                    raise unreachable(error, unknown) from error
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, 1.0)
        for i, result in zip(left, await self._write_singly([items[i] for i in left]), strict=True):
            results[i] = result
        return results


def unreachable(error: BaseException, unknown: bool) -> StoreUnreachable:
    """What callers are told when the database is gone. unknown: whether what they wrote may be there."""
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
