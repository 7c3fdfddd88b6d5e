"""The engine: what all views of one database share."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast

from perdure.model.timing import SYSTEM_CLOCK, Clock, SettableClock
from perdure.store.hints import LocalHints
from perdure.store.memory_vectors import VectorCache
from perdure.store.protocol import Listener, Topic
from perdure.store.rows import Row
from perdure.store.sqlite.engine.batch import NEWS, NOTHING, WORK, Many, One
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.connection import check_sqlite_version
from perdure.store.sqlite.engine.existing_file import check_path, inspect_file
from perdure.store.sqlite.engine.held_files import close_unused
from perdure.store.sqlite.engine.readers import Readers
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.engine.threads import run_in_thread
from perdure.store.sqlite.engine.writer import Writer
from perdure.store.sqlite.hints.notifier import Notifier

T = TypeVar("T")
A = TypeVar("A")

_TOPICS: tuple[tuple[int, Topic], ...] = ((WORK, "work"), (NEWS, "news"))


class Engine:
    """The writer, the readers and the hints of one file, or of a database in memory, which ends with its engine."""

    def __init__(self, path: str | None, clock: SettableClock | None) -> None:
        """Use `open`. clock: database time of a database in memory."""
        self.path = path
        self.clock: Clock = clock or SYSTEM_CLOCK
        self._writer = Writer(path, self._committed, clock)
        self._readers = None if path is None else Readers(path)  # only its writer can see a database in memory
        self._hints = LocalHints()
        self.vectors = VectorCache()
        self._notifier = None if path is None else Notifier(path, self._hints.notify_all)

    @classmethod
    async def open(
        cls,
        path: str | None,
        *,
        clock: SettableClock | None = None,
        inspect: Callable[[sqlite3.Connection, str], None],
        creates: bool = True,
    ) -> Engine:
        """Open the file at this path, or (None) a new database in memory.

        inspect: called with a connection to an existing file and its path before anything of it is changed; it raises if the
        file is not to be used. creates: whether the file may be missing.
        Raises StoreUnreachable, StoreError.
        """
        check_sqlite_version()
        if path is not None:
            path = os.path.abspath(path)  # noqa: ASYNC240, PTH100  no I/O, and no resolving of links
            check_path(path)
            await run_in_thread(partial(inspect_file, path, inspect, absent=creates))
        engine = cls(path, clock)
        await engine._writer.open()
        return engine

    @property
    def name(self) -> str:
        """The database, in messages."""
        return self.path or "the database in memory"

    def write(self, one: One[T], topics: int = NOTHING) -> asyncio.Future[T]:
        """See `Writer.run`."""
        return self._writer.run(one, topics)

    def batch(self, many: Many[A, T], argument: A, topics: int, size: int) -> asyncio.Future[T]:
        """See `Writer.batch`. Callers of all tenants share it: the tenant is a part of the argument."""
        return self._writer.batch(many, argument, topics, size)

    def share(self, wanted: int) -> int:
        """See `Writer.share`."""
        return self._writer.share(wanted)

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Call `fn` with a connection, in one snapshot."""
        if self._readers is not None:
            return await self._readers.run(fn)
        return await self._writer.run(lambda conn, _: fn(conn))

    async def rows(self, statement: str, **values: Any) -> list[Row]:
        """All rows of a named statement that only reads."""
        return cast("list[Row]", await self.read(lambda conn: conn.execute(SQL[statement], values).fetchall()))

    async def row(self, statement: str, **values: Any) -> Row | None:
        """The first row of a named statement that only reads."""
        return cast("Row | None", await self.read(lambda conn: conn.execute(SQL[statement], values).fetchone()))

    async def now(self) -> datetime:
        """Database time, UTC."""
        row = await self.row("db_now")
        assert row is not None
        return CODEC.time(row["now"])

    @asynccontextmanager
    async def listen(self, topic: Topic) -> AsyncIterator[Listener]:
        """See `protocol.HintStore.listen`. A hint is for the listeners of all tenants."""
        if self._notifier is not None:
            self._notifier.start_listening()
        try:
            async with self._hints.listen(topic) as listener:
                yield listener
        finally:
            if self._notifier is not None:
                self._notifier.stop_listening()

    async def close(self) -> None:
        """Finish what was submitted, then close every connection. Calling it twice is fine."""
        await self._writer.close()
        if self._readers is not None:
            await run_in_thread(self._readers.close)
            await run_in_thread(close_unused)
        if self._notifier is not None:
            self._notifier.close()

    def hint(self, topics: int) -> None:
        """Hint at what a commit turned out to have changed."""
        self._committed(topics)

    def _committed(self, topics: int) -> None:
        """A commit changed something: hint at it, here at once, to other processes through their sockets."""
        for bit, topic in _TOPICS:
            if topics & bit:
                self._hints.notify_all(topic)
                if self._notifier is not None:
                    self._notifier.notify(topic)
