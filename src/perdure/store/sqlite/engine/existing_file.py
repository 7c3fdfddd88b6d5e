"""Reading a file before the store opens it: whether there is a database, and whose."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

from perdure.model.errors import StoreUnreachable
from perdure.store.sqlite.engine.connection import read_text
from perdure.store.sqlite.engine.driver_errors import BUSY_SECONDS, DRIVER_ERRORS, not_a_database, translated

_HEADER = 16  # bytes; SQLite takes a file of a single byte for an empty one


def check_path(path: str) -> None:
    """Raise StoreUnreachable if no database can be at this path, StoreError if something else is there."""
    file = Path(path)
    if not file.parent.is_dir():
        raise StoreUnreachable(
            f"cannot open {path}: the directory {file.parent} does not exist",
            hint=f"create it: mkdir -p {shlex.quote(str(file.parent))}",
        )
    if file.is_dir():
        raise StoreUnreachable(f"cannot open {path}: it is a directory", hint="name a file in it")
    # Only its size: to open and close the file would drop the locks of this process's own connections to it.
    if 0 < _size(path) < _HEADER:
        raise not_a_database(path)


def make_private(path: str) -> None:
    """Make a new file, which its owner alone may read and write; give the other files of an existing one its rights.

    Raises OSError.
    """
    real = Path(os.path.realpath(path))
    try:
        os.close(os.open(real, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        mode = stat.S_IMODE(real.stat().st_mode)
        for other in (Path(f"{real}-wal"), Path(f"{real}-shm")):
            with contextlib.suppress(FileNotFoundError):
                found = other.stat()
                if stat.S_IMODE(found.st_mode) != mode and found.st_uid == os.geteuid():
                    other.chmod(mode)


def inspect_file(path: str, look: Callable[[sqlite3.Connection, str], None], *, absent: bool) -> None:
    """Call `look` with a connection to an existing file, in one snapshot, and with its path; nothing of the file is changed.

    absent: whether it may be missing. Raises what `look` raises, SQLite's errors translated.
    """
    if not Path(path).exists():
        if absent:
            return
        raise StoreUnreachable(f"there is no database at {path}", hint="check the URL with perdure config ls")
    # A connection that may write leaves no empty -wal and -shm behind; but at its end it would also put a -wal with content into
    # the file.
    mode = "ro" if _size(os.path.realpath(path) + "-wal") else "rw"
    try:
        with contextlib.closing(
            sqlite3.connect(f"{Path(path).as_uri()}?mode={mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        ) as conn:
            conn.execute("pragma query_only = on")
            conn.text_factory = read_text
            conn.row_factory = sqlite3.Row
            conn.execute("begin")
            look(conn, path)
    except DRIVER_ERRORS as error:
        raise translated(error, path) from error


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
