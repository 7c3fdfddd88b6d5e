"""What the errors of SQLite and of its driver mean to a caller."""

from __future__ import annotations

import shlex
import sqlite3

from perdure.model.errors import (
    IllegalTransition,
    InvalidInput,
    PerdureError,
    SchemaMissing,
    StoreError,
    StoreUnreachable,
)
from perdure.store.sqlite.engine.lock_holders import holders_of

BUSY_SECONDS = 5.0
"""How long the lock of another program is waited for; perdure's own processes queue up at the lock file."""

DRIVER_ERRORS = (sqlite3.Error, UnicodeError, OverflowError)
"""What SQLite and its driver raise over a statement or its values."""


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection has a lock."""
    return error.sqlite_errorname.startswith("SQLITE_BUSY")


def not_a_database(where: str) -> StoreError:
    """The file holds something else."""
    return StoreError(
        f"{where} is not a SQLite database, or its first bytes are damaged",
        hint="name another file, or move this one away; if it was perdure's: stop its workers and restore a backup",
    )


def translated(error: Exception, where: str) -> PerdureError:
    """The error of perdure that one of DRIVER_ERRORS is."""
    text = str(error)
    if isinstance(error, (UnicodeError, OverflowError, sqlite3.DataError)):
        return InvalidInput(f"{where} cannot hold this: {text}")
    if isinstance(error, sqlite3.IntegrityError):
        if text.startswith("illegal transition"):
            return IllegalTransition(text)
        return InvalidInput(f"{where} refuses this: {text}")
    name: str = getattr(error, "sqlite_errorname", "")
    if text.startswith("no such table"):
        return SchemaMissing(f"{where} has no perdure schema yet", hint="create it: perdure db migrate")
    if name.startswith("SQLITE_NOTADB") or "not a database" in text:
        return not_a_database(where)
    if name.startswith("SQLITE_CORRUPT"):
        return StoreError(
            f"{where} is damaged: SQLite says '{text}'",
            hint=f'stop its workers and look at the damage: sqlite3 {shlex.quote(where)} "pragma integrity_check"; then restore '
            "a backup, and run perdure fsck before a worker starts",
        )
    if name.startswith("SQLITE_FULL"):
        return StoreUnreachable(f"{where}: the disk is full; nothing was written", hint="free some space and try again")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreUnreachable(
            f"{where} is locked by {holders_of(where) or 'another program'} for more than {BUSY_SECONDS:g} s",
            hint="close its transaction and try again, or end it if it is stopped",
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM")) or "readonly" in text:
        return StoreUnreachable(
            f"{where} cannot be written: {text}", hint="check the rights of the file and its directory"
        )
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_INTERRUPT", "SQLITE_NOMEM")):
        return StoreUnreachable(f"{where} does not work: {text} ({name})")
    return StoreError(f"{where}: {text}")
