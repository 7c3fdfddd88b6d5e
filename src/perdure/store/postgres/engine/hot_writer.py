"""What the writers of the batchers share: a hot connection, and the pool for blocked items."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from perdure.store.group_commit.retry import Failure, Writer
from perdure.store.postgres.engine.database import Database
from perdure.store.postgres.engine.driver_errors import failure_of, translated
from perdure.store.postgres.engine.hot_connection import HotConnection
from perdure.store.postgres.hints.notifier import Notifier

T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")


def alike(values: Sequence[T]) -> Sequence[T]:
    """An argument of one element where all are the same, and the statement lets one stand for all: the driver looks at each
    element of each array."""
    return values[:1] if values.count(values[0]) == len(values) else values


class HotWriter(Writer[Item, Result]):
    """A writer over a hot connection; blocked items go over the pool, `separate` at a time.

    Items of all tenants share its writes: each item carries its tenant's name.
    """

    def __init__(self, hot: HotConnection, database: Database, notifier: Notifier, separate: asyncio.Semaphore) -> None:
        self._hot = hot
        self._database = database
        self._notifier = notifier
        self._separate = separate

    @property
    def ready(self) -> bool:
        """See `Writer`."""
        return self._hot.ready

    async def connect(self) -> None:
        """See `Writer`."""
        await self._hot.connect()

    def failure(self, error: Exception) -> Failure:
        """See `Writer`."""
        return failure_of(error)

    def refusal(self, error: Exception) -> Exception:
        """See `Writer`."""
        refusal = translated(error)
        if refusal is not error:
            refusal.__cause__ = error
        return refusal
