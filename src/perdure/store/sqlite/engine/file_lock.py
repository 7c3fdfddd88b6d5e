"""The lock file of a database: the perdure processes that share the database write one after the other.

SQLite's own lock is not fair: a process may wait for it for ever. This one is handed on by the kernel.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable

CONTENDED_SECONDS = 1.0
"""For how long a process that had to wait for the lock expects others to want it."""
LONGEST_PAUSE = 0.02
"""Seconds that a process leaves the lock to others at most, after it wrote many rows."""


class FileLock:
    """The lock of one writer. Used from its thread, after `open`."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file = -1
        self._contended_until = 0.0
        self._waited = 0.0

    def open(self) -> None:
        """Make the lock file, for a database that is a file. Raises OSError."""
        if self._path is not None:
            self._file = os.open(self._path + "-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def close(self) -> None:
        """Close the file, which gives up the lock. Calling it twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def acquire(self, before_waiting: Callable[[], None]) -> None:
        """Take the lock; if another process has it, first call `before_waiting`. Raises OSError."""
        if self._file < 0:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._waited = 0.0
        except BlockingIOError:
            before_waiting()
            began = time.monotonic()
            fcntl.flock(self._file, fcntl.LOCK_EX)
            now = time.monotonic()
            self._waited = now - began
            self._contended_until = now + CONTENDED_SECONDS

    def release(self) -> None:
        """Let the next process have it."""
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    @property
    def contended(self) -> bool:
        """Whether other processes wanted the lock a moment ago."""
        return time.monotonic() < self._contended_until

    @property
    def pause(self) -> float:
        """Seconds to leave the lock to others after many rows: as long as it was waited for. The kernel gives it to the first
        process that asks, so one with little to write would lose to those with much again and again."""
        return min(self._waited, LONGEST_PAUSE)
