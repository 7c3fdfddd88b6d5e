"""Connections, their settings, and the pool.

Hot connections (claims, batchers; see hot_connection.py) run a few statements prepared once, with plans that never look at
statistics: a plan made while a table is empty must serve when it is full. Everything else shares a small pool, whose statements
are planned for the actual values.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import asyncpg

from perdure.model.errors import PerdureError
from perdure.store.postgres.engine.codec import read_time, write_time
from perdure.store.postgres.engine.driver_errors import NotConnected, breaks, error_text, refused_by_pooler
from perdure.store.postgres.engine.pooler import BehindPooler, connection_class, is_through_pooler, settings_at_start
from perdure.store.postgres.engine.statements import STATEMENTS
from perdure.store.postgres.engine.url import Address, read_url

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

WRITE_TIMEOUT = 10.0
"""Seconds after which a hot statement without an answer counts as lost: its connection may be dead without knowing."""
POOL_TIMEOUT = 30.0
"""The same for statements of the pool, which may have much to look through; also the longest wait for one of its places."""
SPARE_WAIT = 0.02
"""Seconds that a statement waits for a connection of the pool before the pool opens another one, which takes about as long."""


async def connect(url: str, settings: Mapping[str, str], *, command_timeout: float | None = None) -> Connection:
    """A new connection; raises whatever the driver raises."""
    address = read_url(url)
    return await asyncpg.connect(
        address.dsn,
        timeout=address.timeout,
        command_timeout=command_timeout,
        ssl=address.ssl,
        **_session(address, settings, asyncpg.Connection),
    )


async def open_pool(url: str, *, size: int) -> Pool:
    """A pool of connections, one of them connected; raises whatever the driver raises.

    Raises BehindPooler where the settings of the session do not reach it, unless the URL says what is between.
    """
    address = read_url(url)
    pool = await asyncpg.create_pool(
        address.dsn,
        min_size=0,  # the pool would log every attempt to fill itself up while the database is away
        max_size=size,
        timeout=address.timeout,
        command_timeout=POOL_TIMEOUT,
        ssl=address.ssl,
        init=_read_any_time,
        **_session(address, POOLED, _pooled_class()),
    )
    try:
        async with pool.acquire() as connection:
            if address.pooler is None and "plan_cache_mode" not in address.settings:
                await connection.execute(STATEMENTS["settings_arrived"].sql)
    except BaseException as error:  # a cancelled caller as well: its connection would stay open
        pool.terminate()
        if address.pooler is None and (isinstance(error, asyncpg.DivisionByZeroError) or refused_by_pooler(error)):
            raise BehindPooler from error
        raise
    return pool


def _session(address: Address, settings: Mapping[str, str], ordinary: type[Connection]) -> dict[str, Any]:
    """How the driver is to make a session with these settings."""
    settings = {**settings, **address.settings}
    if not address.pooler:
        return {"connection_class": ordinary, "server_settings": settings}
    return {
        "connection_class": connection_class(settings),
        "server_settings": settings_at_start(settings),
        "statement_cache_size": 0,
    }


async def _read_any_time(connection: AnyConnection) -> None:
    async with connection.transaction() if is_through_pooler(connection) else nullcontext():
        await connection.set_type_codec(
            "timestamptz", schema="pg_catalog", encoder=write_time, decoder=read_time, format="tuple"
        )


def _pooled_class() -> type[Connection]:
    class PooledConnection(asyncpg.Connection):
        """No statement here changes a session, so giving one back needs no round trip."""

        def get_reset_query(self) -> str:
            return ""

    return PooledConnection


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
async def borrowed(pool: Pool, *, wait: float = SPARE_WAIT) -> AsyncIterator[AnyConnection]:
    """A connection of the pool, closed if it breaks. Raises NotConnected if none is to be had.

    wait: seconds to wait for one that is in use before another one is opened.
    """
    await _idle_one(pool, wait)
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


async def _idle_one(pool: Pool, wait: float) -> None:
    """Wait, for a while, as long as the pool has connections, all in use, and would open another one."""
    until = asyncio.get_running_loop().time() + wait
    while not pool.get_idle_size() and 0 < pool.get_size() < pool.get_max_size():
        if asyncio.get_running_loop().time() >= until:
            return
        await asyncio.sleep(0.002)


async def close_quietly(connection: Connection) -> None:
    """Close a connection, gently if it still answers."""
    try:
        await connection.close(timeout=2)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()
