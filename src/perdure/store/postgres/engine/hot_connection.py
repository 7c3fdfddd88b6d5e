"""A connection with a few statements prepared once: for claims and batchers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from perdure.model.errors import PerdureError, StoreUnreachable
from perdure.store.group_commit.retry import Failure
from perdure.store.postgres.engine.connections import (
    HOT,
    WRITE_TIMEOUT,
    Connection,
    close_quietly,
    connect,
    transaction,
)
from perdure.store.postgres.engine.driver_errors import NotConnected, breaks, error_text, failure_of
from perdure.store.postgres.engine.pooler import is_through_pooler
from perdure.store.postgres.engine.statements import STATEMENTS
from perdure.store.rows import Row

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.prepared_stmt import PreparedStatement

RunStatement: TypeAlias = "Callable[..., Awaitable[list[Row]]]"
"""Runs a named statement with its values as keywords, in a transaction that the caller has open."""
Prepared: TypeAlias = "Mapping[str, PreparedStatement[asyncpg.Record]]"


class HotConnection:
    """One connection with its statements prepared, used by one caller at a time. It connects at its first use, and again when it
    was lost; the backend it lost is ended first, so that nothing of it commits later."""

    def __init__(self, url: str, names: Sequence[str]) -> None:
        self._url = url
        self._statements = {name: STATEMENTS[name] for name in names}
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None
        self._prepared: Prepared = {}
        self._backend: tuple[int, Any] | None = None
        self._fence = secrets.randbits(62)  # in place of the backend, which a pooler does not let us know
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def ready(self) -> bool:
        """Whether it is connected."""
        return self._connection is not None and not self._connection.is_closed()

    async def rows(self, name: str, /, **values: Any) -> list[Row]:
        """Run one prepared statement in a transaction of its own."""
        return await self.rows_within(WRITE_TIMEOUT, name, **values)

    async def rows_within(self, seconds: float, name: str, /, **values: Any) -> list[Row]:
        """As `rows`; without an answer after so many seconds the connection counts as lost."""
        arguments = self._statements[name].values(values)
        async with self._turn:
            await self._ensure()
            try:
                rows: list[Any] = await self._prepared[name].fetch(*arguments, timeout=seconds)
            except BaseException as error:
                self._close_if_broken(error)
                raise
            return rows

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[RunStatement]:
        """Several prepared statements in one transaction, each run by what this yields."""
        async with self._turn:
            await self._ensure()
            assert self._connection is not None
            try:
                async with transaction(self._connection):
                    yield self._run_prepared
            except BaseException as error:
                self._close_if_broken(error)
                raise

    async def _run_prepared(self, name: str, /, **values: Any) -> list[Row]:
        rows: list[Any] = await self._prepared[name].fetch(*self._statements[name].values(values))
        return rows

    async def connect(self) -> None:
        """Have a live connection, and no former backend that could still write. Raises the driver's errors."""
        async with self._turn:
            await self._ensure()

    async def close(self) -> None:
        """Disconnect for good."""
        async with self._turn:
            self._closed = True
            if self._connecting is not None:
                await asyncio.wait({self._connecting})
            if self._connection is not None:
                await close_quietly(self._connection)

    def _close_if_broken(self, error: BaseException) -> None:
        assert self._connection is not None
        if breaks(error):
            self._connection.terminate()
        elif isinstance(error, PerdureError) or not self._connection.is_closed():
            return
        elif isinstance(error, Exception):  # the driver has several names for it
            raise ConnectionResetError(error_text(error)) from error

    async def _ensure(self) -> None:
        if self.ready:
            return
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        await asyncio.shield(self._connecting)  # a caller that is cancelled leaves the connection to the next

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # read, so that it is not reported as lost where no caller waits for it

    async def _connect(self) -> None:
        if self._closed:
            raise StoreUnreachable("the store is closed")
        try:
            connection = await connect(self._url, HOT, command_timeout=WRITE_TIMEOUT)
        except Exception as error:
            if failure_of(error) is Failure.LOST:
                raise NotConnected(error_text(error)) from error
            raise
        try:
            if is_through_pooler(connection):
                await connection.outlast(self._fence)
            elif self._backend is not None:
                await _end_backend(connection, self._backend)
            prepared = {name: await connection.prepare(s.sql) for name, s in self._statements.items()}
            # Also ends the implicit transaction, with its locks, that preparing leaves open.
            backend = await connection.fetchrow(STATEMENTS["this_backend"].sql)
        except BaseException:
            connection.terminate()
            raise
        self._backend = None if backend is None else (backend["pid"], backend["backend_start"])
        self._connection, self._prepared = connection, prepared


async def _end_backend(connection: Connection, backend: tuple[int, Any]) -> None:
    """A backend whose client is gone finishes what it was sent; only when it has left is it known what it wrote."""
    end, (pid, started) = STATEMENTS["end_backend"], backend
    for wait in (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0):
        if not await connection.fetch(end.sql, *end.values({"pid": pid, "started": started})):
            return
        await asyncio.sleep(wait)
    raise ConnectionError("a backend whose connection was lost is still at work")
