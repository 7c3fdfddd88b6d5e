"""Connections to the file, how values are spelled in it, and what its errors mean."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import os
import shlex
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from perdure.model.errors import (
    IllegalTransition,
    InvalidInput,
    PerdureError,
    SchemaMissing,
    StoreError,
    StoreUnreachable,
)
from perdure.model.ids import uuid_of
from perdure.model.timing import SettableClock

T = TypeVar("T")

Turn = Callable[[], AbstractContextManager[None]]
"""Makes others wait, as long as it is entered."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_JULIAN = 2440587.5
_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
# SQL typed by hand may say anything: what no datetime can hold in every zone is shown as the first or last that can
_FIRST = (datetime(2, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime(9998, 12, 31, tzinfo=UTC) - _EPOCH) // _MICROSECOND
# and a text that is none is read with U+FFFD in it: a strict reader would fail for whole lists and claims
_TEXT = functools.partial(str, encoding="utf-8", errors="replace")
_CACHED_STATEMENTS = 256
_READERS = 3
_NAPS = (0.001, 0.002, 0.005, 0.01, 0.02)
_OLDEST = (3, 40)
_HEADER = 16  # bytes; SQLite takes a file of a single byte for an empty one

PATIENCE = 5.0
"""Seconds that a stranger's lock is waited for; perdure's own processes queue up at the lock file."""


class SqliteCodec:
    """Ids as hyphenated text, times as microseconds since 1970, lists as JSON arrays."""

    def uuid(self, value: Any) -> UUID:
        """An id column."""
        digits = value.replace("-", "")
        return uuid_of(int(digits, 16)) if len(digits) == 32 else UUID(value)

    def time(self, value: Any) -> datetime:
        """A time column, as UTC."""
        if not _FIRST <= value <= _LAST:
            value = _FIRST if value < _FIRST else _LAST
        return _EPOCH + timedelta(0, 0, value)

    def texts(self, value: Any) -> tuple[str, ...]:
        """A JSON array of texts."""
        return tuple(json.loads(value))


CODEC = SqliteCodec()


def micros(time: datetime | None) -> int | None:
    """A time as it is stored."""
    return None if time is None else (time - _EPOCH) // _MICROSECOND


def span(seconds: float) -> int:
    """A duration as it is stored."""
    return round(seconds * 1_000_000)


def connect(path: str | None, *, writes: bool, turn: Turn = contextlib.nullcontext) -> sqlite3.Connection:
    """Open the file (None: a database in memory). Raises sqlite3.Error, StoreUnreachable.

    turn: held while a file that is not yet shared is made so. One that is needs no lock: the caller may be writing to it.
    """
    conn = sqlite3.connect(
        path or ":memory:",
        timeout=PATIENCE,
        isolation_level=None,
        check_same_thread=False,  # each connection is used by one thread at a time, and closed by another
        cached_statements=_CACHED_STATEMENTS,
    )
    try:
        if path is None:
            conn.execute("pragma journal_mode = memory")
            conn.execute("pragma synchronous = off")
        elif writes:
            _share(conn, path, turn)
            conn.execute("pragma synchronous = full")  # an acknowledged commit survives a power cut
            conn.execute("pragma wal_autocheckpoint = 4000")
            conn.execute("pragma cache_size = -32768")
            conn.execute("pragma journal_size_limit = 67108864")
        else:
            conn.execute("pragma query_only = on")
        conn.execute("pragma temp_store = memory")
        [encoding] = conn.execute("pragma encoding").fetchone()
    except BaseException:
        conn.close()
        raise
    conn.text_factory = _TEXT
    # for queries; triggers must do without
    conn.create_function("fold", 1, functools.partial(_fold, encoding), deterministic=True)
    conn.row_factory = sqlite3.Row
    return conn


def _share(conn: sqlite3.Connection, path: str, turn: Turn) -> None:
    """Switch to WAL. A stranger is not waited for in the turn: those behind would wait for him one after the other."""
    conn.execute("pragma busy_timeout = 0")
    until = time.monotonic() + PATIENCE
    for nap in naps():
        try:
            if conn.execute("pragma journal_mode").fetchone()[0] != "wal":
                with turn():
                    if conn.execute("pragma journal_mode = wal").fetchone()[0] != "wal":
                        raise StoreUnreachable(
                            f"{path} cannot be shared: its file system has no shared memory",
                            hint="put it on a local disk",
                        )
            break
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= until:
                raise
        time.sleep(nap)
    conn.execute(f"pragma busy_timeout = {PATIENCE * 1000:g}")


def probe(conn: sqlite3.Connection) -> None:
    """Raise sqlite3.Error unless it is a database and may be written. If somebody is writing to it just now, it is one.

    From here on the connection waits for no lock.
    """
    conn.execute("pragma busy_timeout = 0")
    try:
        conn.execute("begin immediate")
        conn.execute("rollback")
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else has a lock."""
    return error.sqlite_errorname.startswith("SQLITE_BUSY")


def naps() -> Iterator[float]:
    """Seconds between one look at a stranger's lock and the next, without an end."""
    yield from _NAPS
    yield from itertools.repeat(_NAPS[-1])


def keep_time(conn: sqlite3.Connection, clock: SettableClock) -> None:
    """Let a clock be database time: all that the schema knows of time comes from julianday('now')."""
    conn.execute("pragma trusted_schema = on")  # it is called from a view, from triggers and from defaults
    conn.create_function("julianday", 1, lambda _: (clock.now() - _EPOCH) / _DAY + _EPOCH_JULIAN)


def peek(path: str, look: Callable[[sqlite3.Connection, str], None], *, absent: bool) -> None:
    """Call `look` with a connection to a file that is there, in one snapshot, and with its path; nothing of the file is changed.

    absent: whether it may be missing. Raises what `look` raises, SQLite's errors translated.
    """
    if not Path(path).exists():
        if absent:
            return
        raise StoreUnreachable(f"there is no database at {path}", hint="check the URL with perdure config ls")
    # Who may write leaves no empty -wal and -shm behind; but at its end it would also put a -wal with content into the file.
    mode = "ro" if _size(os.path.realpath(path) + "-wal") else "rw"
    try:
        with contextlib.closing(
            sqlite3.connect(f"{Path(path).as_uri()}?mode={mode}", uri=True, timeout=PATIENCE, isolation_level=None)
        ) as conn:
            conn.execute("pragma query_only = on")
            conn.text_factory = _TEXT
            conn.row_factory = sqlite3.Row
            conn.execute("begin")
            look(conn, path)
    except REFUSALS as error:
        raise meaning(error, path) from error


def _fold(encoding: str, text: bytes | None) -> str | None:
    """Of a text as a blob: what is no text in its encoding, Python would not even be given."""
    return None if text is None else text.decode(encoding, errors="replace").casefold()


def check_engine() -> None:
    """Raise StoreError if Python was built with a SQLite that is too old for the statements of this store."""
    if sqlite3.sqlite_version_info < _OLDEST:
        raise StoreError(
            f"perdure needs SQLite 3.40 or newer; this Python has {sqlite3.sqlite_version}",
            hint="use a newer Python build, or a PostgreSQL database",
        )


def check_place(path: str) -> None:
    """Raise StoreUnreachable if no database can be at this path, StoreError if something else is, saying why in plain words."""
    file = Path(path)
    if not file.parent.is_dir():
        raise StoreUnreachable(
            f"cannot open {path}: the directory {file.parent} does not exist", hint=f"create it: mkdir -p {file.parent}"
        )
    if file.is_dir():
        raise StoreUnreachable(f"cannot open {path}: it is a directory", hint="name a file in it")
    # Looking at the size only: to open and close the file would drop the locks of this process's own connections to it.
    if 0 < _size(path) < _HEADER:
        raise _no_database(path)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _no_database(where: str) -> StoreError:
    return StoreError(
        f"{where} is not a SQLite database, or its first bytes are damaged",
        hint="name another file, or move this one away; if it was perdure's: stop its workers and restore a backup",
    )


REFUSALS = (sqlite3.Error, UnicodeError, OverflowError)
"""What SQLite and its driver raise over a statement or its values."""


def meaning(error: Exception, where: str) -> PerdureError:
    """What one of REFUSALS means to a caller."""
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
        return _no_database(where)
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
            f"{where} is locked by another program for more than {PATIENCE:g} s",
            hint="close its transaction and try again",
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM")) or "readonly" in text:
        return StoreUnreachable(
            f"{where} cannot be written: {text}", hint="check the rights of the file and its directory"
        )
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_INTERRUPT", "SQLITE_NOMEM")):
        return StoreUnreachable(f"{where} does not work: {text} ({name})")
    return StoreError(f"{where}: {text}")


async def apart(fn: Callable[[], None]) -> None:
    """Call `fn`, which blocks, in a thread of its own: the loop's threads may all be taken by their users."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def answer(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            fn()
        except BaseException as raised:  # noqa: BLE001  it belongs to the caller
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(answer, error)

    threading.Thread(target=run, name="perdure-sqlite", daemon=True).start()
    await done


class Readers:
    """A few connections that only read, each with a thread of its own: they never wait for the writer."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="perdure-sqlite-read")

    async def run(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Call `fn` with a connection, in another thread. Raises what `fn` raises, SQLite's errors translated."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._call, fn)
        except RuntimeError as error:
            if "shutdown" in str(error):
                raise StoreUnreachable("the store is closed") from None
            raise

    def _call(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        try:
            conn: sqlite3.Connection | None = getattr(self._local, "conn", None)
            if conn is None:
                conn = self._local.conn = connect(self._path, writes=False)
                self._connections.append(conn)
            conn.execute("begin")  # one snapshot, also for several statements
            try:
                return fn(conn)
            finally:
                conn.execute("rollback")
        except REFUSALS as error:
            raise meaning(error, self._path) from error

    def close(self) -> None:
        """Finish what runs, then close every connection; blocks."""
        self._pool.shutdown(wait=True)
        for conn in self._connections:
            conn.close()
        self._connections.clear()
