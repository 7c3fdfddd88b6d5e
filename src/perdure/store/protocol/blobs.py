"""Contents that are too large for a row of the database. Part of what a `FileStore` is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ContentSettings:
    """Where contents of files are kept. directory: of the blobs; None is a folder next to a SQLite file, or in the user's data
    folder. inline: bytes of the largest content that is stored in the database itself. limit: bytes of all input files of a task,
    and of all output files of a run."""

    directory: Path | None = None
    inline: int = MIB
    limit: int = 1024 * MIB


class Readable(Protocol):
    """An open file, as far as it is read."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; empty at the end."""
        ...


class Writable(Protocol):
    """An open file, as far as it is written."""

    def write(self, data: bytes, /) -> object:
        """Take bytes."""
        ...


class BlobStore(Protocol):
    """Contents by their SHA-256 (hex), of one tenant of one database. Its calls block, so they are made in threads.

    A blob is there before a row of the database refers to it, and goes after the last row that did.
    """

    def add(self, pieces: Iterable[bytes]) -> str:
        """Store a content and return its hash; when this returns, it survives a crash of the machine. What `pieces` raises
        ends it, and then nothing is stored. Raises BlobDirUnusable."""
        ...

    def read(self, hash: str) -> Iterator[bytes]:
        """The content in pieces. Raises ContentMissing; ContentDamaged at its end, if its hash is another."""
        ...

    def holds(self, hash: str) -> bool:
        """Whether it is there."""
        ...

    def old(self, before: float) -> Iterator[list[str]]:
        """The hashes of what was added before this time (seconds since 1970), in portions. Raises BlobDirUnusable."""
        ...

    def remove(self, hash: str, before: float) -> bool:
        """Remove a blob; False, and it stays, if it was added after this time, also while this runs. Raises
        BlobDirUnusable."""
        ...
