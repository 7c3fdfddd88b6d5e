"""The lock file of a database: the perdure processes that share the database write one after the other.

SQLite's own lock is not fair: a process may wait for it for ever. This one is handed on by the kernel. It only makes the
processes take turns: whether a write is right depends on SQLite's lock alone. So a process that cannot have it, because another
one holds it for long or because the file system has no locks, goes on without it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable

import structlog

from perdure.store.sqlite.engine.lock_holders import holders_of

CONTENDED_SECONDS = 1.0
"""For how long a process that had to wait for the lock expects others to want it."""
LONGEST_PAUSE = 0.02
"""Seconds that a process leaves the lock to others at most, after it wrote many rows."""
LONGEST_WAIT = 5.0
"""Seconds after which a process goes on without the lock."""
_LOOK = 0.1
"""Seconds between two looks at how long the lock has been waited for."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

log = structlog.get_logger("perdure.store")

_open_files: set[int] = set()
"""The descriptors of all lock files of this process: a child that inherited one would keep the lock when this process is gone."""


def _close_in_child() -> None:
    for descriptor in _open_files:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _open_files.clear()


os.register_at_fork(after_in_child=_close_in_child)


class GivenUp(Exception):
    """The lock was waited for too long; another thread goes on with the work of this one."""


class FileLock:
    """The lock of one writer. Used from its thread, after `open`.

    given_up: called, from another thread, when `acquire` has waited for too long: the thread that waits can be interrupted by
    nothing. Its `acquire` will raise GivenUp, and the thread that takes its place need not wait.
    """

    def __init__(self, path: str | None, given_up: Callable[[], None]) -> None:
        self._path = path
        self._given_up = given_up
        self._file = -1
        self._held = False
        self._contended_until = 0.0
        self._waited = 0.0
        self._mutex = threading.Lock()
        self._waiting_since: float | None = None
        self._watching = False
        self._skipping = False

    def open(self) -> None:
        """Make the lock file, for a database that is a file, with the rights of the database. Raises OSError."""
        if self._path is not None:
            self._file = _open(self._path)

    def close(self) -> None:
        """Close the file, which gives up the lock. Calling it twice is fine."""
        with self._mutex:
            if self._file >= 0:
                _close(self._file)
                self._file = -1

    def acquire(self, before_waiting: Callable[[], None]) -> None:
        """Take the lock; if another process has it, first call `before_waiting`. Raises GivenUp, OSError."""
        if self._file < 0:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            before_waiting()
            if not self._skipping:
                self._wait()
            return
        except OSError as error:
            self._do_without(error)
            return
        self._held = True
        self._waited = 0.0
        if self._skipping:
            log.info("the lock file of the database is free again", file=self._path)
            self._skipping = False

    def acquire_soon(self, before_waiting: Callable[[], None]) -> None:
        """As `acquire`, in a thread whose work no other can take over: it looks again and again, and does not queue up."""
        until = time.monotonic() + LONGEST_WAIT
        while self._file >= 0 and not self._skipping:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                before_waiting()
            except OSError as error:
                self._do_without(error)
                return
            else:
                self._held = True
                return
            if time.monotonic() >= until:
                self._tell()
            time.sleep(0.001)

    def release(self) -> None:
        """Let the next process have it."""
        if self._held and self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._held = False

    @property
    def contended(self) -> bool:
        """Whether other processes wanted the lock a moment ago."""
        return time.monotonic() < self._contended_until

    @property
    def pause(self) -> float:
        """Seconds to leave the lock to others after many rows: as long as it was waited for. The kernel gives it to the first
        process that asks, so one with little to write would lose to those with much again and again."""
        return min(self._waited, LONGEST_PAUSE)

    def _wait(self) -> None:
        file, began = self._file, time.monotonic()
        with self._mutex:
            self._waiting_since = began
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, name="perdure-sqlite-lock", daemon=True).start()
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        finally:
            with self._mutex:
                given_up = self._waiting_since != began
                self._waiting_since = None if not given_up else self._waiting_since
            if given_up:
                _close(file)
        if given_up:
            raise GivenUp
        now = time.monotonic()
        self._held = True
        self._waited = now - began
        self._contended_until = now + CONTENDED_SECONDS

    def _watch(self) -> None:
        """See that the wait for the lock ends. It ends itself when no other process has wanted the lock for a while."""
        pause, quiet_since = threading.Event(), time.monotonic()
        while True:
            pause.wait(_LOOK)
            now = time.monotonic()
            with self._mutex:
                if self._waiting_since is None:
                    if now - quiet_since > LONGEST_WAIT:
                        self._watching = False
                        return
                    continue
                quiet_since = now
                if now - self._waiting_since < LONGEST_WAIT:
                    continue
                self._waiting_since = None
                self._watching = False
                self._file = self._another()
            self._tell()
            self._given_up()
            return

    def _another(self) -> int:
        """Another descriptor of the file: the one before belongs to the thread that waits."""
        assert self._path is not None
        try:
            return _open(self._path)
        except OSError:
            return -1

    def _tell(self) -> None:
        self._skipping = True
        log.warning(
            "the lock file of the database is held for too long; writing without it",
            file=f"{self._path}-lock",
            seconds=LONGEST_WAIT,
            held_by=holders_of(self._path or "") or "an unknown process",
        )

    def _do_without(self, error: OSError) -> None:
        """The file system has no such lock. Raises other errors."""
        if error.errno not in _NO_LOCKS:
            raise error
        log.warning(
            "the file system of the database gives no lock; writing without it",
            file=f"{self._path}-lock",
            error=str(error),
        )
        self.close()


def held_by(path: str) -> str | None:
    """Who holds the lock file of this database for a second now; None if it was free meanwhile."""
    try:
        file = _open(path)
    except OSError:
        return None
    until = time.monotonic() + 1
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    return holders_of(path) or "an unknown process"
                time.sleep(0.002)
            except OSError:
                return None
            else:
                return None
    finally:
        _close(file)


def _open(path: str) -> int:
    file = os.open(path + "-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _open_files.add(file)
    try:
        mode, found = stat.S_IMODE(os.stat(path).st_mode), os.fstat(file)  # noqa: PTH116  in the writer's thread
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != mode:
            os.fchmod(file, mode)
    except FileNotFoundError:  # a database that is not made yet
        pass
    except BaseException:
        _close(file)
        raise
    return file


def _close(file: int) -> None:
    _open_files.discard(file)
    os.close(file)
