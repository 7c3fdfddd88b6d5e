"""Calls that share a transaction of the writer."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from perdure.model.errors import PerdureError

T = TypeVar("T")
A = TypeVar("A")

One = Callable[[sqlite3.Connection, int], T]
"""A few statements of one caller: the connection, and database time in microseconds. It is called again, later, if another caller
fails who shares its transaction: what it did is undone by then, and it must remember nothing of it."""

Many = Callable[[sqlite3.Connection, int, Sequence[A]], Sequence[T | PerdureError]]
"""The same operation for several callers at once: one answer for each, in order; a PerdureError is raised to its caller."""

NOTHING, WORK, NEWS = 0, 1, 2
"""What a commit may be worth a hint: bits of `topics`."""


class Item(Generic[T]):
    """One call on its way through the writer."""

    __slots__ = ("argument", "error", "future", "loop", "many", "one", "result", "since", "size", "topics")

    def __init__(self, loop: asyncio.AbstractEventLoop, topics: int) -> None:
        self.loop = loop
        self.future: asyncio.Future[T] = loop.create_future()
        self.topics = topics
        self.since = time.monotonic()
        self.size = 0
        self.one: One[T] | None = None
        self.many: Many[Any, T] | None = None
        self.argument: Any = None
        self.result: T | None = None
        self.error: BaseException | None = None


def groups_of(batch: list[Item[Any]]) -> list[list[Item[Any]]]:
    """What runs as one: calls of one operation together, in the place of the first of them."""
    groups: list[list[Item[Any]]] = []
    together: dict[Any, list[Item[Any]]] = {}
    for item in batch:
        if item.many is None:
            groups.append([item])
        elif (group := together.get(item.many)) is not None:
            group.append(item)
        else:
            together[item.many] = [item]
            groups.append(together[item.many])
    return groups


def perform(conn: sqlite3.Connection, now: int, group: list[Item[Any]]) -> None:
    """Run one call, or several of one operation as one."""
    first = group[0]
    for item in group:
        item.error = None
    if first.one is not None:
        first.result = first.one(conn, now)
        return
    assert first.many is not None
    results = first.many(conn, now, [item.argument for item in group])
    for item, result in zip(group, results, strict=True):
        if isinstance(result, PerdureError):
            item.error = result
        else:
            item.result = result


def answer(items: list[Item[Any]]) -> None:
    """Resolve the futures of their callers; called in the loop of these."""
    for item in items:
        if item.future.done():  # its caller was cancelled meanwhile
            continue
        if item.error is not None:
            item.future.set_exception(item.error)
        else:
            item.future.set_result(item.result)
