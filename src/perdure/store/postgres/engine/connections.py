"""Connections, their settings, and the pool.

Hot connections (claims, batchers; see hot_connection.py) run a few statements prepared once, with plans that never look at
statistics: a plan made while a table is empty must serve when it is full. Everything else shares a small pool, whose statements
are planned for the actual values.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

import asyncpg

from perdure.model.errors import PerdureError
from perdure.store.group_commit.retry import Failure
from perdure.store.postgres.engine.codec import read_time, write_time
from perdure.store.postgres.engine.driver_errors import READ_ONLY, NotConnected, error_text, failure_of
from perdure.store.postgres.engine.url import read_url

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

# In quotes: the driver's classes are generic for the type checker only.
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
AnyConnection: TypeAlias = "Connection | PoolConnectionProxy[asyncpg.Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Isolation: TypeAlias = Literal["repeatable_read"]

COMMON = {
    "application_name": "perdure",
    "TimeZone": "UTC",  # times inside JSON are written by the server
    "jit": "off",
    "default_transaction_isolation": "read committed",
    "search_path": "pg_catalog, pg_temp",  # another role's operators and functions are not found, whatever the database says
    # A session whose client is gone without closing its connection keeps its locks no longer than this.
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
    "lock_timeout": "100ms",  # another session's lock must not stop all callers of a batcher
}
# Lists have optional filters: only a plan made for the actual values leaves out those that are not asked for.
POOLED = {**COMMON, "plan_cache_mode": "force_custom_plan", "lock_timeout": "5s"}
NOTIFYING = {**COMMON, "synchronous_commit": "off"}  # what it commits is only hints

WRITE_TIMEOUT = 10.0
"""Seconds after which a hot statement without an answer counts as lost: its connection may be dead without knowing."""
POOL_TIMEOUT = 30.0
"""The same for statements of the pool, which may have much to look through; also the longest wait for one of its places."""


async def connect(url: str, settings: Mapping[str, str], *, command_timeout: float | None = None) -> Connection:
    """A new connection; raises whatever the driver raises."""
    address = read_url(url)
    return await asyncpg.connect(
        address.dsn,
        timeout=address.timeout,
        command_timeout=command_timeout,
        ssl=address.ssl,
        server_settings={**settings, **address.settings},
    )


async def open_pool(url: str, *, size: int) -> Pool:
    """A pool of connections, one of them connected; raises whatever the driver raises."""
    address = read_url(url)
    pool = await asyncpg.create_pool(
        address.dsn,
        min_size=0,  # the pool would log every attempt to fill itself up while the database is away
        max_size=size,
        timeout=address.timeout,
        command_timeout=POOL_TIMEOUT,
        ssl=address.ssl,
        connection_class=_pooled_class(),
        init=_read_any_time,
        server_settings={**POOLED, **address.settings},
    )
    async with pool.acquire():
        return pool


async def _read_any_time(connection: AnyConnection) -> None:
    await connection.set_type_codec(
        "timestamptz", schema="pg_catalog", encoder=write_time, decoder=read_time, format="tuple"
    )


def _pooled_class() -> type[Connection]:
    class PooledConnection(asyncpg.Connection):
        """No statement here changes a session, so giving one back needs no round trip."""

        def get_reset_query(self) -> str:
            return ""

    return PooledConnection


def breaks(error: BaseException) -> bool:
    """Whether a connection is of no more use after this: it is lost, or takes no writes, or the caller was cancelled in the
    middle of a statement, so that the outcome is unknown."""
    return not isinstance(error, Exception) or isinstance(error, READ_ONLY) or failure_of(error) is Failure.LOST


@asynccontextmanager
async def transaction(
    connection: AnyConnection, *, isolation: Isolation | None = None, readonly: bool = False
) -> AsyncIterator[None]:
    """One transaction; a connection that broke is not asked for a rollback, its owner closes it."""
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
    """A connection of the pool, closed if it breaks. Raises NotConnected if none is to be had."""
    try:
        connection = await pool.acquire(timeout=POOL_TIMEOUT)
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
            raise ConnectionResetError(error_text(error)) from error  # whatever the driver calls it
        raise
    finally:
        await pool.release(connection)


async def close_quietly(connection: Connection) -> None:
    """Close a connection, gently if it still answers."""
    try:
        await connection.close(timeout=2)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()
