"""The files of a database in use: held, so that no process takes it for unused, and compared with what is at their paths.

SQLite says with POSIX locks that it has a database open. A process loses all of them as soon as any code in it opens and closes
the file, as a copy does; then the next process that closes the database is the last one for all it knows, and removes the -wal
file with the commits that others write into it. A lock of an open file description (Linux) says the same and is not lost so.
Elsewhere the removal is noticed: what was written since is not acknowledged.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

import structlog

from perdure.model.errors import FileReplaced

_SHARED = (0x40000002, 510)
"""First byte and number: of the database file; locked for reading by all who have it open, for writing to remove the -wal."""
_IN_USE = (128, 1)
"""The same in the -shm file; who finds it unlocked empties that file."""

_Identity = tuple[int, int]

log = structlog.get_logger("perdure.store")


@dataclass(slots=True)
class _Held:
    file: int
    bytes: tuple[int, int]
    users: int


_held: dict[_Identity, _Held] = {}
_mutex = threading.Lock()


def _forget_in_child() -> None:
    """A child would hold the locks when this process is gone. Closing a file drops no lock of a parent."""
    global _mutex  # noqa: PLW0603  another thread may have had it at the fork
    _mutex = threading.Lock()
    for held in _held.values():
        with contextlib.suppress(OSError):
            os.close(held.file)
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)


class HeldFiles:
    """The files of one engine's database. Used from the thread of its writer, which has it open."""

    def __init__(self) -> None:
        self._expected: dict[str, _Identity] = {}
        self._holding: list[_Identity] = []

    def hold(self, path: str) -> None:
        """Begin. Raises OSError if the files are not there."""
        real = os.path.realpath(path)
        self._expected = {name: _identity(name) for name in (real, real + "-wal")}
        if not hasattr(fcntl, "F_OFD_SETLK"):
            return
        for name, bytes in ((real, _SHARED), (real + "-shm", _IN_USE)):
            try:
                self._holding.append(_hold(name, bytes))
            except OSError as error:  # a file system without locks, or where the file may not be opened twice
                log.debug("the database file is not locked against removal of its -wal", file=name, error=str(error))

    def check(self) -> None:
        """Raise FileReplaced if another file is at one of the paths, or none."""
        for path, identity in self._expected.items():
            try:
                found = _identity(path)
            except OSError:
                raise FileReplaced(f"{path} was deleted or moved while it was in use", hint=_HINT) from None
            if found != identity:
                raise FileReplaced(f"{path} was replaced while it was in use", hint=_HINT)

    def release(self) -> None:
        """End; before SQLite closes the database, which may then remove the -wal file. Calling it twice is fine."""
        with _mutex:
            for identity in self._holding:
                held = _held.get(identity)
                if held is None:
                    continue
                held.users -= 1
                if held.users == 0:
                    _lock(held.file, fcntl.F_UNLCK, held.bytes)
        self._holding.clear()
        self._expected.clear()


_HINT = "what was written since is not in the file: restart this process, then run perdure fsck"


def close_unused() -> None:
    """Close the files that are held no more, unless a connection of this process has them open: it would lose its locks."""
    with _mutex:
        unused = {identity: held for identity, held in _held.items() if held.users == 0}
        if not unused:
            return
        mine = {held.file for held in unused.values()}
        others = _open_files(mine)
        for identity, held in unused.items():
            if others is not None and identity not in others:
                os.close(held.file)
                del _held[identity]


def _hold(path: str, bytes: tuple[int, int]) -> _Identity:
    with _mutex:
        identity = _identity(path)
        held = _held.get(identity)
        if held is None:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            held = _held[identity] = _Held(file, bytes, 0)
        if held.users == 0:
            _lock(held.file, fcntl.F_RDLCK, bytes)
        held.users += 1
        return identity


def _lock(file: int, kind: int, bytes: tuple[int, int]) -> None:
    start, number = bytes
    # struct flock: type, whence, start, number of bytes, and a pid, which must be 0
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi0q", kind, os.SEEK_SET, start, number, 0))


def _identity(path: str) -> _Identity:
    found = os.stat(path)  # noqa: PTH116  before each answer of the writer: a Path costs as much again
    return found.st_dev, found.st_ino


def _open_files(without: set[int]) -> set[_Identity] | None:
    """What this process has open, apart from these descriptors; None where that is not known."""
    identities = set()
    try:
        for entry in Path("/proc/self/fd").iterdir():
            if int(entry.name) not in without:
                with contextlib.suppress(OSError):  # closed by now, among them the one of this list
                    identities.add(_identity(f"/proc/self/fd/{entry.name}"))
    except OSError:
        return None
    return identities
