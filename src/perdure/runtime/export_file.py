"""A file of exported jobs that is synced to the disk before they are deleted: JSON lines, gzipped if its name ends in .gz."""

from __future__ import annotations

import fcntl
import os
import stat
import zlib
from pathlib import Path
from types import TracebackType
from typing import Self

from perdure.model.errors import InvalidInput

BLOCK = 1024 * 1024


class Archive:
    """A file opened for appending, by one process at a time; what it has already stays. Every call blocks.

    After a crash the file may end in the middle of a line, which was never saved; opening it removes that part.
    """

    def __init__(self, path: Path) -> None:
        """Raises InvalidInput if the file cannot be written, is no regular file, has other content, or is in use."""
        self.path = path
        self._zipped = path.suffix == ".gz"
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._zip = None if not self._zipped else _member()
        self._begun = False  # an empty member would hide that the file is ours
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise InvalidInput(f"cannot write {path}: {error.strerror}") from None
        try:
            self._prepare()
        except BaseException:
            os.close(self._fd)
            raise

    def _prepare(self) -> None:
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise InvalidInput(
                f"{self.path} is no regular file: jobs that will be deleted must be exported to a disk",
                hint="name a file",
            )
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidInput(f"{self.path} is being written by another prune", hint="name another file") from None
        size = os.fstat(self._fd).st_size
        if size:
            good = _whole_members(self._fd) if self._zipped else _whole_lines(self._fd)
            if not _is_ours(self._fd, zipped=self._zipped):
                raise InvalidInput(f"{self.path} exists and does not hold exported jobs", hint="name another file")
            if good < size:
                os.ftruncate(self._fd, good)
        _sync_directory(self.path)

    def add(self, line: str) -> None:
        """Append a line. Raises OSError, for example if the disk is full."""
        self._begun = True
        data = line.encode() + b"\n"
        self._waiting.append(data if self._zip is None else self._zip.compress(data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= BLOCK:
            self._write()

    def save(self) -> None:
        """Write what was added, and sync it to the disk. Raises OSError."""
        if self._zip is not None and self._begun:
            self._waiting.append(self._zip.flush())
            self._zip = _member()
            self._begun = False
        self._write()
        os.fsync(self._fd)

    def _write(self) -> None:
        data = memoryview(b"".join(self._waiting))
        self._waiting, self._waiting_bytes = [], 0
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Close the file; what was added since the last `save` may or may not be in it."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _member() -> zlib._Compress:
    return zlib.compressobj(wbits=31)  # a gzip file is a sequence of members: each `save` ends one


def _sync_directory(path: Path) -> None:
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _whole_lines(fd: int) -> int:
    """The length of the part that consists of whole lines."""
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - BLOCK)
        found = os.pread(fd, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _whole_members(fd: int) -> int:
    """The length of the part that consists of whole gzip members."""
    good = position = 0
    member = zlib.decompressobj(wbits=31)
    try:
        while data := os.pread(fd, BLOCK, position):
            position += len(data)
            while data:
                member.decompress(data, BLOCK)
                if member.eof:
                    data = member.unused_data
                    good = position - len(data)
                    member = zlib.decompressobj(wbits=31)
                else:
                    data = member.unconsumed_tail
    except zlib.error:
        return good
    return good


def _is_ours(fd: int, *, zipped: bool) -> bool:
    """Whether the first line is a record."""
    start = os.pread(fd, 4096, 0)
    if zipped:
        try:
            start = zlib.decompressobj(wbits=31).decompress(start, 64)
        except zlib.error:
            return False
    return start.startswith(b'{"v":') and b'"record":' in start[:64]
