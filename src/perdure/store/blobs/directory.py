"""A directory of blobs: a file for each content, named by its hash.

A blob is written under another name, synced and renamed, so what has its name is whole. It is written again where it is there
already: then its time says when a row that refers to it may be committed, and `remove` knows that it must stay."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from perdure.model.errors import BlobDirUnusable, ContentDamaged, ContentMissing

PIECE = 1024 * 1024
PORTION = 500
READ_AGAIN_AFTER = 0.1
"""Seconds; `remove` may have a blob in its hands that it then puts back."""

_HASH = re.compile(r"[0-9a-f]{64}")
_INCOMING = "incoming"


class BlobDirectory:
    """See `protocol.blobs.BlobStore`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._incoming = folder / _INCOMING

    def add(self, pieces: Iterable[bytes]) -> str:
        """See `BlobStore.add`."""
        partial = self._incoming / uuid4().hex
        try:
            _make(self._incoming)
            try:
                hash = _write(partial, pieces)
                place = self._place(hash)
                _make(place.parent)
                partial.replace(place)
                _sync(place.parent)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            raise self._unusable(error) from error
        return hash

    def read(self, hash: str) -> Iterator[bytes]:
        """See `BlobStore.read`."""
        place = self._place(hash)
        digest = hashlib.sha256()
        try:
            try:
                file = place.open("rb")
            except FileNotFoundError:
                time.sleep(READ_AGAIN_AFTER)
                file = place.open("rb")
            with file:
                while piece := file.read(PIECE):
                    digest.update(piece)
                    yield piece
        except OSError as error:
            raise ContentMissing(
                f"the content {hash[:12]}… cannot be read on {socket.gethostname()}: {place}: {error.strerror or error}",
                hint="if other machines use this database, cli_blob_dir must be one directory that all of them share",
            ) from error
        if digest.hexdigest() != hash:
            raise ContentDamaged(f"{place} on {socket.gethostname()} is not what was stored: its hash is another")

    def holds(self, hash: str) -> bool:
        """See `BlobStore.holds`."""
        try:
            return self._place(hash).is_file()
        except OSError:  # no right to look there
            return False

    def old(self, before: float) -> Iterator[list[str]]:
        """See `BlobStore.old`. It also ends what a process that was killed has left unfinished."""
        try:
            self._tidy(before)
            yield from self._old(before)
        except OSError as error:
            raise self._unusable(error) from error

    def _old(self, before: float) -> Iterator[list[str]]:
        portion: list[str] = []
        for folder in sorted(self._folders()):
            with suppress(OSError), os.scandir(folder) as entries:
                portion += [e.name for e in entries if _HASH.fullmatch(e.name) and e.stat().st_mtime < before]
            if len(portion) >= PORTION:
                yield portion
                portion = []
        if portion:
            yield portion

    def remove(self, hash: str, before: float) -> bool:
        """See `BlobStore.remove`."""
        place = self._place(hash)
        away = self._incoming / f"{hash}.{uuid4().hex}"
        try:
            if place.stat().st_mtime >= before:
                return False
            _make(self._incoming)
            place.rename(away)
            if away.stat().st_mtime >= before:  # it was added in between
                away.replace(place)
                return False
            away.unlink()
        except FileNotFoundError:  # another process removed it
            return False
        except OSError as error:
            raise self._unusable(error) from error
        return True

    def _unusable(self, error: OSError) -> BlobDirUnusable:
        return BlobDirUnusable(
            f"large files cannot be written to {self.folder} on {socket.gethostname()}: {error.strerror or error}",
            hint="free some space, or name another directory: cli_blob_dir",
        )

    def _place(self, hash: str) -> Path:
        assert _HASH.fullmatch(hash)
        return self.folder / hash[:2] / hash

    def _folders(self) -> Iterator[Path]:
        with suppress(FileNotFoundError):
            for folder in self.folder.iterdir():
                if len(folder.name) == 2:
                    yield folder

    def _tidy(self, before: float) -> None:
        """Delete what was never whole, and put back what a killed `remove` had taken: the next one decides again."""
        with suppress(FileNotFoundError):
            for path in list(self._incoming.iterdir()):
                with suppress(FileNotFoundError):
                    hash, dot, _ = path.name.partition(".")
                    if dot and _HASH.fullmatch(hash):
                        if time.time() - path.stat().st_ctime > 60:
                            path.replace(self._place(hash))
                    elif path.stat().st_mtime < before:
                        path.unlink()


def _write(path: Path, pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _make(folder: Path) -> None:
    """A folder that survives a crash, with those above it."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
