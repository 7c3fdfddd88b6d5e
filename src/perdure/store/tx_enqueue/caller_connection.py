"""Enqueueing inside a transaction that belongs to the caller: what both dialects share.

The caller's connection is known by its class, found in `sys.modules` and never imported: its library is no dependency. What
is to be done on it is written once, as a generator that yields statements and is sent rows. It is run in the thread of a
blocking connection, or in the event loop of an async one.

Errors of the caller's connection (a deadlock, a lost connection) are the driver's own and pass unchanged: the caller's
handling of its transactions knows them.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from perdure.model.errors import NoTransaction, OtherDatabase, UnsupportedTransaction
from perdure.model.jobs import Enqueued

T = TypeVar("T")

Rows: TypeAlias = Sequence[Sequence[Any]]
Request: TypeAlias = tuple[str, Any]
"""A statement and its parameters; None instead of parameters: it returns no rows."""
Steps: TypeAlias = Generator[Request, Rows, T]

SUPPORTED = (
    "a connection or cursor of psycopg 3, asyncpg, sqlite3 or aiosqlite, or a connection or session of SQLAlchemy 2"
)
SAVEPOINT = "perdure_enqueue"

_SQLITE_LIKE = (("sqlite3", "Connection", "Cursor"), ("aiosqlite", "Connection", "Cursor"))
_POSTGRES_LIKE = (
    ("psycopg", "Connection", "AsyncConnection", "Cursor", "AsyncCursor", "Transaction", "AsyncTransaction"),
    ("asyncpg", "Connection"),
    ("asyncpg.pool", "PoolConnectionProxy"),
)


def is_a(value: object, module: str, *names: str) -> bool:
    """Whether it is an instance of one of these classes; a module that was never imported has no instances."""
    home = sys.modules.get(module)
    kinds = [getattr(home, name, None) for name in names]
    return isinstance(value, tuple(kind for kind in kinds if isinstance(kind, type)))


@dataclass(frozen=True, slots=True)
class ConnectionSteps:
    """What is to be done on a driver's connection, and how to ask it: `ask` of a blocking one, else `ask_async`.

    cancel: cuts off, from any thread, what a blocking connection is doing. One that has it may be used in any thread.
    """

    steps: Steps[list[Enqueued]]
    ask: Callable[[str, Any], Rows] | None = None
    ask_async: Callable[[str, Any], Awaitable[Rows]] | None = None
    cancel: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class PreparedEnqueue:
    """An enqueue that is about to happen in a caller's transaction. Nothing of the caller's was touched so far.

    tx: what the caller handed in. work: what the store does with the driver's connection beneath it.
    """

    tx: object
    work: Callable[[Any], ConnectionSteps]

    def run(self) -> list[Enqueued]:
        """Do it in this thread. Raises UnsupportedTransaction for an async connection."""
        if not _async_toolkit(self.tx):
            with _hints_for(self.tx):
                work = self.work(_beneath(self.tx))
                if work.ask is not None:
                    return _run(work.steps, work.ask)
        raise UnsupportedTransaction(
            f"tx= is async ({_name(self.tx)}), and this call is not",
            hint="await the same call of the App, or use a blocking connection here",
        )

    async def run_async(self) -> list[Enqueued]:
        """Do it in this event loop. A blocking connection is used in a thread if it can be; else the loop waits for it."""
        with _hints_for(self.tx):
            beneath = await _beneath_async(self.tx) if _async_toolkit(self.tx) else _beneath(self.tx)
            work = self.work(beneath)
            if work.ask_async is not None:
                return await _run_async(work.steps, work.ask_async)
            assert work.ask is not None
            if work.cancel is not None:
                return await _run_apart(work.steps, work.ask, work.cancel)
            return _run(work.steps, work.ask)


def _run(steps: Steps[T], ask: Callable[[str, Any], Rows]) -> T:
    try:
        request = next(steps)
        while True:
            try:
                rows = ask(*request)
            except BaseException as error:  # noqa: BLE001  the steps undo what they began, and raise it again
                request = steps.throw(error)
            else:
                request = steps.send(rows)
    except StopIteration as end:
        done: T = end.value
        return done


async def _run_async(steps: Steps[T], ask: Callable[[str, Any], Awaitable[Rows]]) -> T:
    try:
        request = next(steps)
        while True:
            try:
                rows = await ask(*request)
            except BaseException as error:  # noqa: BLE001  as above
                request = steps.throw(error)
            else:
                request = steps.send(rows)
    except StopIteration as end:
        done: T = end.value
        return done


async def _run_apart(steps: Steps[T], ask: Callable[[str, Any], Rows], cancel: Callable[[], None]) -> T:
    """In a thread: the statement may wait for a lock whose holder needs this event loop to commit."""
    running = asyncio.ensure_future(asyncio.to_thread(_run, steps, ask))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not running.done():
            await asyncio.to_thread(cancel)
        await asyncio.wait({running})  # only then is the connection the caller's own again
        if not running.cancelled():
            running.exception()  # read: no caller waits for it any more
        raise


def all_or_none(steps: Steps[T]) -> Steps[T]:
    """The steps as a part of the transaction that leaves nothing if it fails."""
    yield f"savepoint {SAVEPOINT}", None
    try:
        done = yield from steps
    except BaseException:
        with contextlib.suppress(Exception):  # whatever comes now, the first error is what happened
            yield f"rollback to savepoint {SAVEPOINT}", None
            yield f"release savepoint {SAVEPOINT}", None
        raise
    yield f"release savepoint {SAVEPOINT}", None
    return done


# -- SQLAlchemy: the driver's connection beneath ---------------------------------------------------------------------------
# Its own transaction begins with the first statement that goes through it, and so does that of its adapters for async
# drivers: hence one that does nothing. What follows goes straight to the driver.

_NOTHING = "select 1"


def _async_toolkit(tx: object) -> bool:
    return is_a(tx, "sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession", "async_scoped_session")


def _blocking_toolkit(tx: object) -> bool:
    return is_a(tx, "sqlalchemy.orm", "Session", "scoped_session") or is_a(tx, "sqlalchemy.engine", "Connection")


@contextlib.contextmanager
def _hints_for(tx: object) -> Iterator[None]:
    """Raise NoTransaction in the terms of SQLAlchemy: its driver has no transaction if SQLAlchemy was set to autocommit."""
    try:
        yield
    except NoTransaction as error:
        if not (_async_toolkit(tx) or _blocking_toolkit(tx)):
            raise
        hint = 'use an engine or connection of SQLAlchemy without isolation_level="AUTOCOMMIT"'
        raise NoTransaction(error.message, hint=hint) from None


def _beneath(tx: Any) -> Any:
    if is_a(tx, "sqlalchemy.orm", "scoped_session"):
        tx = tx()
    if is_a(tx, "sqlalchemy.orm", "Session"):
        tx = tx.connection()
    if not is_a(tx, "sqlalchemy.engine", "Connection"):
        return tx
    tx.exec_driver_sql(_NOTHING).close()
    return tx.connection.driver_connection


async def _beneath_async(tx: Any) -> Any:
    if is_a(tx, "sqlalchemy.ext.asyncio", "async_scoped_session"):
        tx = tx()
    if is_a(tx, "sqlalchemy.ext.asyncio", "AsyncSession"):
        tx = await tx.connection()
    await tx.exec_driver_sql(_NOTHING)
    return (await tx.get_raw_connection()).driver_connection


# -- refusals --------------------------------------------------------------------------------------------------------------


def _name(tx: object) -> str:
    kind = type(tx)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def not_ours(tx: object, where: str) -> UnsupportedTransaction | OtherDatabase:
    """What is wrong with something a store cannot join. where: the App's database, in words."""
    if any(is_a(tx, *known) for known in (*_SQLITE_LIKE, *_POSTGRES_LIKE)):
        return other_database(f"a connection of {_name(tx).partition('.')[0]}", where)
    if type(tx).__module__.startswith("psycopg2"):
        hint = "psycopg2 is not supported: use psycopg 3, in SQLAlchemy as postgresql+psycopg://"
    else:
        hint = f"pass {SUPPORTED}"
    return UnsupportedTransaction(
        f"tx= cannot be of type {_name(tx)}: perdure knows no way into its transaction", hint=hint
    )


def other_database(theirs: str, ours: str) -> OtherDatabase:
    """The connection leads elsewhere. theirs, ours: in words."""
    return OtherDatabase(
        f"tx= is {theirs}, but the App's jobs are in {ours}",
        hint="give the App the URL of the database that your transaction is in",
    )


def closed(tx: object) -> UnsupportedTransaction:
    """There was a connection."""
    return UnsupportedTransaction(
        f"tx= is of type {_name(tx)}, and it is closed or was given back to its pool",
        hint="pass the open connection on which your transaction runs, inside of its block",
    )


def no_transaction(hint: str) -> NoTransaction:
    """What is written would be committed at once."""
    return NoTransaction("tx= has no open transaction: the job would be committed at once, by itself", hint=hint)
