"""Connections to the file."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta

from perdure.model.cost import add_cost, cost_of, text_of_cost
from perdure.model.errors import StoreError, StoreUnreachable
from perdure.model.ids import hash_json
from perdure.model.timing import SettableClock
from perdure.store.sqlite.engine.codec import EPOCH
from perdure.store.sqlite.engine.driver_errors import BUSY_SECONDS, is_busy

Lock = Callable[[], AbstractContextManager[None]]
"""Keeps the other processes that write to the file waiting, as long as it is entered."""

# A text that is not UTF-8 is read with U+FFFD in it: a strict reader would fail for whole lists and claims.
read_text = functools.partial(str, encoding="utf-8", errors="replace")

_EPOCH_JULIAN = 2440587.5
_DAY = timedelta(days=1)
_CACHED_STATEMENTS = 256
_PAUSES = (0.001, 0.002, 0.005, 0.01, 0.02)
_OLDEST = (3, 40)


def check_sqlite_version() -> None:
    """Raise StoreError if Python was built with a SQLite that is too old for the statements of this store."""
    if sqlite3.sqlite_version_info < _OLDEST:
        raise StoreError(
            f"perdure needs SQLite 3.40 or newer; this Python has {sqlite3.sqlite_version}",
            hint="use a newer Python build, or a PostgreSQL database",
        )


def connect(path: str | None, *, writes: bool, lock: Lock = contextlib.nullcontext) -> sqlite3.Connection:
    """Open the file (None: a database in memory). Raises sqlite3.Error, StoreUnreachable.

    lock: held while a file that is not yet in WAL mode is switched to it. One that is in WAL mode already needs no lock: the
    caller itself may be writing to it.
    """
    conn = sqlite3.connect(
        path or ":memory:",
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,  # each connection is used by one thread at a time, and closed by another
        cached_statements=_CACHED_STATEMENTS,
    )
    try:
        if path is None:
            conn.execute("pragma journal_mode = memory")
            conn.execute("pragma synchronous = off")
        elif writes:
            _switch_to_wal(conn, path, lock)
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
    conn.text_factory = read_text
    # for queries; triggers must do without
    conn.create_function("fold", 1, functools.partial(_fold, encoding), deterministic=True)
    conn.create_function("sha256", 1, functools.partial(_sha256, encoding), deterministic=True)
    conn.create_function("add_cost", 2, _add_cost, deterministic=True)
    conn.row_factory = sqlite3.Row
    return conn


def _switch_to_wal(conn: sqlite3.Connection, path: str, lock: Lock) -> None:
    """Another program's lock is not waited for while ours is held: the processes behind us would wait one after the other."""
    conn.execute("pragma busy_timeout = 0")
    until = time.monotonic() + BUSY_SECONDS
    for pause in pauses():
        try:
            if conn.execute("pragma journal_mode").fetchone()[0] != "wal":
                with lock():
                    if conn.execute("pragma journal_mode = wal").fetchone()[0] != "wal":
                        raise StoreUnreachable(
                            f"{path} cannot be shared: its file system has no shared memory",
                            hint="put it on a local disk",
                        )
            break
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= until:
                raise
        time.sleep(pause)
    conn.execute(f"pragma busy_timeout = {BUSY_SECONDS * 1000:g}")


def check_writable(conn: sqlite3.Connection) -> None:
    """Raise sqlite3.Error unless it is a database and may be written; one that another connection writes to just now is.

    After this the connection waits for no lock.
    """
    conn.execute("pragma busy_timeout = 0")
    try:
        conn.execute("begin immediate")
        conn.execute("rollback")
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise


def pauses() -> Iterator[float]:
    """Seconds between two attempts to get a lock that another program has, without an end."""
    yield from _PAUSES
    yield from itertools.repeat(_PAUSES[-1])


def use_clock(conn: sqlite3.Connection, clock: SettableClock) -> None:
    """Make a clock database time: all that the schema knows of time comes from julianday('now')."""
    conn.execute("pragma trusted_schema = on")  # it is called from a view, from triggers and from defaults
    conn.create_function("julianday", 1, lambda _: (clock.now() - EPOCH) / _DAY + _EPOCH_JULIAN)


@contextlib.contextmanager
def savepoint(conn: sqlite3.Connection) -> Iterator[None]:
    """A part of the running transaction that leaves nothing if it fails."""
    conn.execute("savepoint part")
    try:
        yield
    except BaseException:
        if conn.in_transaction:
            conn.execute("rollback to part")
            conn.execute("release part")
        raise
    conn.execute("release part")


def _add_cost(one: str, other: str) -> str:
    return text_of_cost(add_cost(cost_of(one), cost_of(other)))


def _fold(encoding: str, text: bytes | None) -> str | None:
    """Of a text as a blob: one that is not valid in its encoding would not reach Python as text."""
    return None if text is None else text.decode(encoding, errors="replace").casefold()


def _sha256(encoding: str, text: bytes | None) -> str | None:
    """The hash of a text as `hash_json` makes it, in hex."""
    return None if text is None else hash_json(text.decode(encoding, errors="replace"))
