"""Connections, by temper.

Hot connections (claims, batchers) run a few statements prepared once, with plans that never look at statistics: a plan made
while a table is empty must serve when it is full. Everything else shares a small pool with the planner's own judgement.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import asyncpg

from perdure.model.errors import PerdureError, StoreUnreachable
from perdure.store.group_commit.retry import PATIENCE, Trouble
from perdure.store.postgres.engine.driver_errors import NotConnected, in_words, trouble_of
from perdure.store.rows import Row

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy
    from asyncpg.prepared_stmt import PreparedStatement

# In quotes: the driver's classes are generic for the type checker only.
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
AnyConnection: TypeAlias = "Connection | PoolConnectionProxy[asyncpg.Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Isolation: TypeAlias = Literal["repeatable_read"]
Prepared: TypeAlias = "Mapping[str, PreparedStatement[asyncpg.Record]]"

COMMON = {
    "application_name": "perdure",
    "TimeZone": "UTC",  # times inside JSON are written by the server
    "jit": "off",
    "default_transaction_isolation": "read committed",
    # A session whose client vanished without a word keeps its locks no longer than this.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
HOT = {
    **COMMON,
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "lock_timeout": "100ms",  # a stranger's lock must not freeze all callers of a batcher
}
# Lists have optional filters: only a plan made for the actual values leaves out those that are not asked for.
CALM = {**COMMON, "plan_cache_mode": "force_custom_plan", "lock_timeout": "5s"}
NOTIFYING = {**COMMON, "synchronous_commit": "off"}  # what it commits is only hints

CONNECT_TIMEOUT = 10.0
WRITE_TIMEOUT = 10.0
"""Seconds after which a hot statement without an answer counts as lost: its connection may be dead without knowing."""
CALM_TIMEOUT = 30.0
"""The same for statements of the pool, which may have much to look through; also the longest wait for one of its places."""

_WHO = """select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()"""
_END = """select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and backend_start = $2"""


async def connect(url: str, settings: Mapping[str, str], *, command_timeout: float | None = None) -> Connection:
    """A new connection; raises whatever the driver raises."""
    return await asyncpg.connect(
        url, timeout=CONNECT_TIMEOUT, command_timeout=command_timeout, server_settings=dict(settings)
    )


async def open_pool(url: str, *, size: int) -> Pool:
    """A pool of calm connections, one of them connected; raises whatever the driver raises."""
    pool = await asyncpg.create_pool(
        url,
        min_size=0,  # the pool would log every attempt to fill itself up while the database is away
        max_size=size,
        timeout=CONNECT_TIMEOUT,
        command_timeout=CALM_TIMEOUT,
        connection_class=_calm_class(),
        server_settings=CALM,
    )
    async with pool.acquire():
        return pool


def _calm_class() -> type[Connection]:
    class CalmConnection(asyncpg.Connection):
        """Nothing here changes a session, so giving one back needs no round trip."""

        def get_reset_query(self) -> str:
            return ""

    return CalmConnection


def breaks(error: BaseException) -> bool:
    """Whether a connection is of no more use after this: it is lost, or somebody gave up in the middle of a statement, whose
    end nobody can be sure to hear of."""
    return not isinstance(error, Exception) or trouble_of(error) is Trouble.LOST


@asynccontextmanager
async def transaction(
    connection: AnyConnection, *, isolation: Isolation | None = None, readonly: bool = False
) -> AsyncIterator[None]:
    """One transaction; a connection that broke is not asked for a rollback, its owner cuts it."""
    running = connection.transaction(isolation=isolation, readonly=readonly)
    await running.start()
    try:
        yield
    except BaseException as error:
        if not breaks(error):
            await running.rollback()
        raise
    await running.commit()


@asynccontextmanager
async def borrowed(pool: Pool) -> AsyncIterator[AnyConnection]:
    """A connection of the pool, cut if it breaks. Raises NotConnected if none is to be had."""
    try:
        connection = await pool.acquire(timeout=CALM_TIMEOUT)
    except TimeoutError as error:
        raise NotConnected("no connection in time") from error
    try:
        yield connection
    except BaseException as error:
        closed = True
        with suppress(asyncpg.InterfaceError):  # it has left the pool by itself
            closed = connection.is_closed()
            if closed or breaks(error):  # before asyncpg 0.32 the pool would count a closed one as in use for ever
                connection.terminate()
        if isinstance(error, TimeoutError):
            await pool.expire_connections()  # its neighbours go the same way through the network
        if closed and isinstance(error, Exception) and not isinstance(error, PerdureError):
            raise ConnectionResetError(in_words(error)) from error  # whatever the driver calls it
        raise
    finally:
        await pool.release(connection)


class HotConnection:
    """One connection with its statements prepared, shared by those who take turns. It connects at its first use, and again
    when it was lost; the backend it lost is ended first, so that nothing of it commits later."""

    def __init__(self, url: str, statements: Mapping[str, str], names: Sequence[str]) -> None:
        self._url = url
        self._statements = {name: statements[name] for name in names}
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None
        self._prepared: Prepared = {}
        self._backend: tuple[int, Any] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def ready(self) -> bool:
        """Whether it is connected."""
        return self._connection is not None and not self._connection.is_closed()

    async def fetch(self, name: str, *arguments: Any, timeout: float = WRITE_TIMEOUT) -> list[Row]:
        """Run one prepared statement in its own transaction; without an answer after `timeout` seconds it counts as lost."""
        async with self._turn:
            await self._ensure()
            try:
                rows: list[Any] = await self._prepared[name].fetch(*arguments, timeout=timeout)
            except BaseException as error:
                self._judge(error)
                raise
            return rows

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Prepared]:
        """Several prepared statements in one transaction."""
        async with self._turn:
            await self._ensure()
            assert self._connection is not None
            try:
                async with transaction(self._connection):
                    yield self._prepared
            except BaseException as error:
                self._judge(error)
                raise

    async def restore(self) -> None:
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

    def _judge(self, error: BaseException) -> None:
        assert self._connection is not None
        if breaks(error):
            self._connection.terminate()
        elif isinstance(error, PerdureError) or not self._connection.is_closed():
            return
        elif isinstance(error, Exception):  # whatever the driver calls it
            raise ConnectionResetError(in_words(error)) from error

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
            task.exception()  # whoever waits has it; if nobody does any more, nobody needs to hear of it

    async def _connect(self) -> None:
        if self._closed:
            raise StoreUnreachable("the store is closed")
        try:
            connection = await connect(self._url, HOT, command_timeout=WRITE_TIMEOUT)
        except Exception as error:
            if trouble_of(error) is Trouble.LOST:
                raise NotConnected(in_words(error)) from error
            raise
        try:
            if self._backend is not None:
                await _end_backend(connection, self._backend)
            prepared = {name: await connection.prepare(sql) for name, sql in self._statements.items()}
            # Also ends the implicit transaction, with its locks, that preparing leaves open.
            who = await connection.fetchrow(_WHO)
        except BaseException:
            connection.terminate()
            raise
        self._backend = None if who is None else (who["pid"], who["backend_start"])
        self._connection, self._prepared = connection, prepared


async def _end_backend(connection: Connection, backend: tuple[int, Any]) -> None:
    """A backend whose client is gone finishes what it was sent; only when it has left is it known what it wrote."""
    for wait in (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0):
        if not await connection.fetch(_END, *backend):
            return
        await asyncio.sleep(wait)
    raise ConnectionError("a backend whose connection was lost is still at work")


async def close_quietly(connection: Connection) -> None:
    """Close a connection, gently if it still answers."""
    try:
        await connection.close(timeout=2)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()


class Backoff:
    """Pauses between attempts to get a connection back, for `patience` seconds in all."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._deadline = asyncio.get_running_loop().time() + patience
        self._delay = 0.02

    @property
    def over(self) -> bool:
        """True once there is no more patience."""
        return asyncio.get_running_loop().time() >= self._deadline

    async def pause(self) -> None:
        """Wait a little longer than the last time."""
        await asyncio.sleep(self._delay * random.uniform(0.5, 1.0))
        self._delay = min(self._delay * 2, 1.0)
