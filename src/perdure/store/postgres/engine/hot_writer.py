"""What the rooms of the store share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from perdure.store.group_commit.retry import Trouble, Writer
from perdure.store.postgres.engine.connections import HotConnection
from perdure.store.postgres.engine.driver_errors import translated, trouble_of
from perdure.store.postgres.engine.transactions import Database
from perdure.store.postgres.hints.notifier import Bell

T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")


def alike(values: Sequence[T]) -> Sequence[T]:
    """An argument of one element where all are the same, and the statement lets one stand for all: the driver looks at each
    element of each array."""
    return values[:1] if values.count(values[0]) == len(values) else values


class Base:
    """One tenant's view of a database: its transactions and its bell."""

    tenant: str
    _db: Database
    _bell: Bell


class HotWriter(Writer[Item, Result]):
    """A writer over a hot connection; blocked items go over the pool, leaving some of it to others."""

    def __init__(self, hot: HotConnection, db: Database, bell: Bell, aside: asyncio.Semaphore) -> None:
        self._hot = hot
        self._db = db
        self._bell = bell
        self._aside = aside

    @property
    def ready(self) -> bool:
        """See `Writer`."""
        return self._hot.ready

    async def get_ready(self) -> None:
        """See `Writer`."""
        await self._hot.restore()

    def trouble(self, error: Exception) -> Trouble:
        """See `Writer`."""
        return trouble_of(error)

    def refusal(self, error: Exception) -> Exception:
        """See `Writer`."""
        refusal = translated(error)
        if refusal is not error:
            refusal.__cause__ = error
        return refusal
