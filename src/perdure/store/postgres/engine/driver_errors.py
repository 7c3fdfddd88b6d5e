"""What the driver's errors mean to us, and what they are called above the store."""

from __future__ import annotations

import re
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
from perdure.store.group_commit.retry import Trouble

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
"""What a job raises whose rows somebody changed by hand."""


class Restart(Exception):
    """What a transaction found does not fit together because the job moved meanwhile: begin it again."""


class NotConnected(ConnectionError):
    """There is no connection to write over."""


def trouble_of(error: Exception) -> Trouble:
    """The kind of an error."""
    if isinstance(error, asyncpg.DataError | asyncpg.ClientConfigurationError):  # interface errors, but the caller's
        return Trouble.OTHER
    if isinstance(error, NotConnected):
        return Trouble.AWAY
    if isinstance(error, (*_LOST, asyncpg.InterfaceError)):
        return Trouble.LOST
    if isinstance(error, (Restart, *_CLASH)):
        return Trouble.CLASH
    if isinstance(error, asyncpg.LockNotAvailableError):
        return Trouble.BLOCKED
    return Trouble.OTHER


def out_of_reach(error: Exception) -> bool:
    """Whether a translated error comes from the connection: whatever is tried next will meet it too."""
    cause = error.__cause__
    return isinstance(cause, Exception) and trouble_of(cause) in (Trouble.LOST, Trouble.AWAY)


def translated(error: Exception) -> Exception:
    """The error as the layers above know it."""
    if isinstance(error, PerdureError):
        return error
    if isinstance(error, asyncpg.CheckViolationError):
        if re.match(r"illegal transition|a job cannot leave", str(error)):
            return IllegalTransition(str(error))
        return InvalidInput(f"the database refuses this: {in_words(error)}")
    if isinstance(error, _NO_SCHEMA):
        return SchemaMissing(
            f"the perdure schema is missing or incomplete: {in_words(error)}", hint="create it: perdure db migrate"
        )
    if isinstance(error, asyncpg.LockNotAvailableError):
        return StoreUnreachable(
            "another session keeps a lock on this for too long; nothing was written",
            hint="look for open transactions in pg_stat_activity",
        )
    if isinstance(error, asyncpg.DataError | asyncpg.PostgresError) and _is_bad_value(error):
        return InvalidInput(f"the database refuses this: {in_words(error)}")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreUnreachable(
            f"the database does not let this user do that: {in_words(error)}",
            hint="use the role that ran perdure db migrate, or grant this one what it lacks",
        )
    if isinstance(error, _DENIED) or trouble_of(error) in (Trouble.LOST, Trouble.AWAY, Trouble.CLASH):
        return StoreUnreachable(f"the database does not answer: {in_words(error)}")
    if isinstance(error, asyncpg.PostgresError):
        return StoreError(f"the database refuses this: {in_words(error)}")
    return error


def in_words(error: Exception) -> str:
    """The error's text, or its name where it has none. The server's DETAIL stays out: it repeats the row's values."""
    text = error.args[0] if isinstance(error, asyncpg.PostgresError) and error.args else error
    return str(text) or type(error).__name__


def _is_bad_value(error: Exception) -> bool:
    state = getattr(error, "sqlstate", None) or ""
    return isinstance(error, asyncpg.DataError) or state.startswith("22") or state in ("23502", "54000")


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
    if isinstance(error, TimeoutError):
        return StoreUnreachable(
            f"{where} does not answer in time", hint="check the host and port in the URL, and the network"
        )
    return StoreUnreachable(
        f"{where} cannot be reached: {in_words(error)}",
        hint="is PostgreSQL running, and are host and port right?",
    )


def where_is(url: str) -> str:
    """The database of a URL in words, without user and password. Raises ValueError for a URL that cannot be split."""
    parts = urlsplit(url)
    # before an @ stands the end of a password whose / was not escaped
    name = unquote(parts.path.lstrip("/").rpartition("@")[2]) or "its default database"
    host = parts.hostname or "this machine"
    return f"PostgreSQL database '{name}' at {host}:{parts.port or 5432}"
