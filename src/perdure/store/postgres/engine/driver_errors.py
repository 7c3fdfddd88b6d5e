"""What the driver's errors mean, and as which errors the layers above the store see them."""

from __future__ import annotations

import re
from typing import NoReturn
from urllib.parse import unquote, urlsplit

import asyncpg

from perdure.model.errors import (
    IllegalTransition,
    InvalidInput,
    PerdureError,
    SchemaMissing,
    StoreError,
    StoreUnreachable,
)
from perdure.store.group_commit.retry import Failure

_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,
    OSError,  # TimeoutError too
)
_CLASH = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_NO_SCHEMA = (
    asyncpg.UndefinedTableError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
)
_DENIED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)

CLIENT_LIBRARY_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""Everything that can come out of the driver."""


DAMAGED = (asyncpg.IntegrityConstraintViolationError, asyncpg.InvalidTextRepresentationError, asyncpg.DataError)
"""What a job raises whose rows were changed by hand."""


READ_ONLY = asyncpg.ReadOnlySQLTransactionError
"""The session takes no writes: its server became a standby, or it was opened while the database was set so. It may stay so for as
long as it lives, so it is replaced like a lost one; but nothing was written."""


class Restart(Exception):
    """What a transaction found does not fit together because the job moved meanwhile: it must begin again."""


class NotConnected(ConnectionError):
    """There is no connection to write over."""


def failure_of(error: Exception) -> Failure:
    """The kind of an error."""
    if isinstance(error, asyncpg.DataError | asyncpg.ClientConfigurationError):  # interface errors, but the caller's
        return Failure.OTHER
    if isinstance(error, NotConnected | READ_ONLY):
        return Failure.AWAY
    if isinstance(error, (*_LOST, asyncpg.InterfaceError)):
        return Failure.LOST
    if isinstance(error, (Restart, *_CLASH)):
        return Failure.CLASH
    if isinstance(error, asyncpg.LockNotAvailableError):
        return Failure.BLOCKED
    return Failure.OTHER


def breaks(error: BaseException) -> bool:
    """Whether a connection is of no more use after this: it is lost, or takes no writes, or the caller was cancelled in the
    middle of a statement, so that the outcome is unknown."""
    return not isinstance(error, Exception) or isinstance(error, READ_ONLY) or failure_of(error) is Failure.LOST


def out_of_reach(error: Exception) -> bool:
    """Whether a translated error comes from the connection: whatever is tried next will meet it too."""
    cause = error.__cause__
    return isinstance(cause, Exception) and failure_of(cause) in (Failure.LOST, Failure.AWAY)


def translated(error: Exception) -> Exception:
    """The error as the layers above know it."""
    if isinstance(error, PerdureError):
        return error
    if isinstance(error, asyncpg.CheckViolationError):
        if re.match(r"illegal transition|a job cannot leave", str(error)):
            return IllegalTransition(str(error))
        return InvalidInput(f"the database refuses this: {error_text(error)}")
    if isinstance(error, _NO_SCHEMA):
        return SchemaMissing(
            f"the perdure schema is missing or incomplete: {error_text(error)}", hint="create it: perdure db migrate"
        )
    if isinstance(error, asyncpg.LockNotAvailableError):
        return StoreUnreachable(
            "another session keeps a lock on this for too long; nothing was written",
            hint="look for open transactions in pg_stat_activity",
        )
    if isinstance(error, asyncpg.DataError | asyncpg.PostgresError) and _is_bad_value(error):
        return InvalidInput(f"the database refuses this: {error_text(error)}")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreUnreachable(
            f"the database does not let this user do that: {error_text(error)}",
            hint="use the role that ran perdure db migrate, or grant this one what it lacks",
        )
    if isinstance(error, READ_ONLY):
        return StoreUnreachable(
            f"the database takes no writes at the moment: {error_text(error)}",
            hint="is this a standby? Jobs go on by themselves when it takes writes again",
        )
    if isinstance(error, _DENIED) or failure_of(error) in (Failure.LOST, Failure.AWAY, Failure.CLASH):
        return StoreUnreachable(f"the database does not answer: {error_text(error)}")
    if isinstance(error, asyncpg.PostgresError):
        return StoreError(f"the database refuses this: {error_text(error)}")
    return error


def raise_translated(error: Exception) -> NoReturn:
    """Raise the error as the layers above know it."""
    refusal = translated(error)
    if refusal is error:
        raise error
    raise refusal from error


def error_text(error: Exception) -> str:
    """The error's text, or its name where it has none. The server's DETAIL stays out: it repeats the row's values."""
    text = error.args[0] if isinstance(error, asyncpg.PostgresError) and error.args else error
    return str(text) or type(error).__name__


def _is_bad_value(error: Exception) -> bool:
    state = getattr(error, "sqlstate", None) or ""
    return isinstance(error, asyncpg.DataError) or state.startswith("22") or state in ("23502", "54000")


def refused_by_pooler(error: BaseException) -> bool:
    """Whether a connection was refused for its settings, as a pooler does it: a server takes every one that perdure sends."""
    return isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error)


def cannot_connect(where: str, error: Exception) -> StoreUnreachable:
    """The first connection failed: says why, and what to do about it."""
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return StoreUnreachable(f"{where} does not exist", hint="create it: createdb, or check the name in the URL")
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return StoreUnreachable(
            f"{where} does not let this user in: {error}", hint="check the user and password in the URL"
        )
    if isinstance(error, asyncpg.TooManyConnectionsError):
        return StoreUnreachable(
            f"{where} has no connection left: {error}", hint="raise max_connections, or run fewer workers"
        )
    if refused_by_pooler(error):
        return StoreUnreachable(
            f"{where} is behind a pooler such as PgBouncer, which refuses the settings of the session: {error}",
            hint="write pgbouncer=true in the URL, and leave out settings of yours that the pooler refuses",
        )
    if isinstance(error, asyncpg.UndefinedObjectError):  # a startup parameter
        return StoreUnreachable(
            f"{where} refuses the connection: {error}",
            hint="is that a parameter of the URL? The server takes those of libpq and settings of its own",
        )
    if isinstance(error, TimeoutError):
        return StoreUnreachable(
            f"{where} does not answer in time", hint="check the host and port in the URL, and the network"
        )
    return StoreUnreachable(
        f"{where} cannot be reached: {error_text(error)}",
        hint="is PostgreSQL running, and are host and port right?",
    )


def where_is(url: str) -> str:
    """The database of a URL for a message, without user and password. Raises ValueError for a URL that cannot be split."""
    parts = urlsplit(url)
    # before an @ stands the end of a password whose / was not escaped
    name = unquote(parts.path.lstrip("/").rpartition("@")[2]) or "its default database"
    hosts = parts.netloc.rpartition("@")[2]
    if "," in hosts:
        return f"PostgreSQL database '{name}' at {hosts}"
    host = parts.hostname or "this machine"
    return f"PostgreSQL database '{name}' at {host}:{parts.port or 5432}"
