"""Connections through a pooler such as PgBouncer in transaction mode: each transaction may be in another session of the server.

So nothing here lasts longer than a transaction. The settings of a session are set for each transaction, in the message that
begins it; a statement without a transaction gets one; nothing stays prepared; a stream of rows is a cursor of SQL.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import asyncpg

from perdure.store.postgres.engine.driver_errors import breaks
from perdure.store.postgres.engine.statements import STATEMENTS

if TYPE_CHECKING:
    Base = asyncpg.Connection[asyncpg.Record]
else:  # generic for the type checker only
    Base = asyncpg.Connection

AT_START = frozenset({"application_name", "options"})
"""Settings that a pooler takes when a client connects."""
OF_A_SESSION = ("default_transaction_", "tcp_")
"""Settings that mean nothing for a transaction that has begun. The TCP connection of the session is the pooler's."""
CURSOR = "perdure_rows"
LONGEST_PAUSE = "2min"
"""In a transaction whose client is gone and whose pooler has not noticed; then the server ends it, with its locks."""


class BehindPooler(Exception):
    """There is a pooler between this process and the server: it refused the settings of the session, or kept them to itself."""


def settings_at_start(settings: Mapping[str, str]) -> dict[str, str]:
    """What is sent when connecting through a pooler, which refuses what it does not know."""
    return {name: value for name, value in settings.items() if name in AT_START}


@functools.cache
def _class_with(settings: tuple[tuple[str, str], ...]) -> type[PoolerConnection]:
    settings = (*settings, ("idle_in_transaction_session_timeout", LONGEST_PAUSE))
    set_all = ", ".join(f"pg_catalog.set_config({_quoted(name)}, {_quoted(value)}, true)" for name, value in settings)
    return type("PoolerConnection", (PoolerConnection,), {"settings": f"select {set_all}"})


def connection_class(settings: Mapping[str, str]) -> type[PoolerConnection]:
    """The class of connections whose transactions have these settings."""
    of_transaction = (
        (name, value) for name, value in settings.items() if name not in AT_START and not name.startswith(OF_A_SESSION)
    )
    return _class_with(tuple(of_transaction))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class Fetch(Protocol):
    """A statement that is ready to run."""

    async def fetch(self, *arguments: Any, timeout: float | None = None) -> list[Any]: ...


class PoolerConnection(Base):
    """A connection to a pooler. Made with `statement_cache_size=0`.

    fence: the advisory lock that each transaction holds while it lasts; None: no lock.
    """

    settings = ""
    fence: int | None = None

    def get_reset_query(self) -> str:
        """Nothing of a session was changed."""
        return ""

    def transaction(  # type: ignore[override]  # none is nested or deferrable here
        self, *, isolation: str | None = None, readonly: bool = False, timeout: float | None = None
    ) -> PoolerTransaction:
        """One transaction with the settings; timeout: seconds for its beginning, None for the connection's."""
        begin = f"begin isolation level {(isolation or 'read committed').replace('_', ' ')}{' read only' * readonly}"
        lock = "" if self.fence is None else f"select pg_catalog.pg_advisory_xact_lock({self.fence})"
        return PoolerTransaction(self, "; ".join(filter(None, (begin, self.settings, lock))), timeout)

    async def fetch(self, query: str, *arguments: Any, timeout: float | None = None, **more: Any) -> Any:
        """The rows of a statement, in a transaction of its own where none is open."""
        if self.is_in_transaction():
            return await super().fetch(query, *arguments, timeout=timeout, **more)
        async with self.transaction(timeout=timeout):
            return await super().fetch(query, *arguments, timeout=timeout, **more)

    async def fetchrow(self, query: str, *arguments: Any, **more: Any) -> Any:
        """The first row of a statement, as `fetch`."""
        rows = await self.fetch(query, *arguments, **more)
        return rows[0] if rows else None

    async def cursor(self, query: str, *arguments: Any, prefetch: int = 50) -> AsyncIterator[Any]:  # type: ignore[override]  # the driver's would leave a prepared statement behind
        """The rows of a statement in the open transaction, few at a time."""
        await self.execute(f"declare {CURSOR} no scroll cursor for {query}", *arguments)
        while rows := await self.fetch(f"fetch {prefetch} from {CURSOR}"):
            for row in rows:
                yield row
        await self.execute(f"close {CURSOR}")

    async def _introspect_types(self, *what: Any) -> Any:
        """The driver asks for what it does not know of arrays and enums; for that it changes a setting of the session."""
        await self.execute("savepoint asked_by_driver")
        types = await super()._introspect_types(*what)  # type: ignore[misc]  # not in the stubs
        await self.execute("rollback to savepoint asked_by_driver; release savepoint asked_by_driver")
        return types

    async def prepare(self, query: str, **_: Any) -> Fetch:  # type: ignore[override]  # see Unprepared
        """The statement as if it were prepared."""
        return Unprepared(self, query)

    async def outlast(self, fence: int) -> None:
        """Wait until no transaction of a lost connection with this fence can commit any more; hold it from now on.

        A transaction takes the lock when it begins and keeps it until its commit is visible. So one that has not taken it yet has
        nothing to commit: its client is gone and sends no more.
        """
        find_holders = STATEMENTS["end_fence_holders"]
        for wait in (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0):
            values = find_holders.values({"fence": fence, "ends": wait >= 0.5})
            if not await self.fetch(find_holders.sql, *values):
                self.fence = fence
                return
            await asyncio.sleep(wait)
        raise ConnectionError("a transaction whose connection was lost is still at work")


def is_through_pooler(connection: object) -> TypeGuard[PoolerConnection]:
    """Whether this is such a connection: for `isinstance` of the driver's classes all connections are of all of them."""
    return issubclass(type(connection), PoolerConnection)


class PoolerTransaction:
    """One transaction: as the driver's, but it begins with the settings in the same message."""

    def __init__(self, connection: PoolerConnection, begin: str, timeout: float | None) -> None:
        self._connection = connection
        self._begin = begin
        self._timeout = timeout

    async def start(self) -> None:
        """Begin."""
        try:
            await self._connection.execute(self._begin, timeout=self._timeout)
        except Exception as error:
            if not breaks(error):
                await self.rollback()
            raise

    async def commit(self) -> None:
        """Commit."""
        await self._connection.execute("commit")

    async def rollback(self) -> None:
        """Undo it."""
        await self._connection.execute("rollback")

    async def __aenter__(self) -> None:
        await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.commit()
        elif not breaks(error):  # else its owner closes the connection
            await self.rollback()


class Unprepared:
    """A statement that is sent whole each time."""

    def __init__(self, connection: PoolerConnection, query: str) -> None:
        self._connection = connection
        self._query = query

    async def fetch(self, *arguments: Any, timeout: float | None = None) -> list[Any]:
        """All its rows."""
        rows: list[Any] = await self._connection.fetch(self._query, *arguments, timeout=timeout)
        return rows
