"""The contents of files: small ones in the database, large ones in a directory. What both dialects share."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import NamedTuple
from uuid import UUID

from perdure.model.errors import ContentDamaged, FilesTooLarge
from perdure.model.task_records import NewFile
from perdure.store.blobs.directory import PIECE, BlobDirectory
from perdure.store.blobs.threads import in_thread, until_stopped
from perdure.store.protocol.blobs import BlobStore, ContentSettings, Readable, Writable

KEPT_SECONDS = 86_400.0
"""How long a blob stays that no row refers to: the row may be about to be committed."""

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class BlobFolders:
    """The folders of the blobs of one engine: one for each database and tenant."""

    def __init__(self, settings: ContentSettings, default: Path | None) -> None:
        """default: where they are unless the settings say; None for a database in memory, whose blobs end with it."""
        self.settings = settings
        self._root = settings.directory or default
        self.identity: str | None = None
        """Of the database: two databases may have one root, and each removes only blobs of its own."""

    def of(self, identity: str, tenant_id: str) -> BlobDirectory:
        """The directory of a tenant of the database with this identity."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="perdure-blobs-"))
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        return BlobDirectory(self._root / folder_name(identity) / folder_name(tenant_id))


def folder_name(name: str) -> str:
    """A name as that of a folder, also on a file system that does not tell capital letters from small ones."""
    return name if _PLAIN.fullmatch(name) else "=" + hashlib.sha256(name.encode()).hexdigest()[:32]


def user_data_folder() -> Path:
    """Where programs of this user keep data."""
    given = os.environ.get("XDG_DATA_HOME", "")
    return Path(given) if given.startswith("/") else Path.home() / ".local" / "share"


class ContentRow(NamedTuple):
    """A content as a row has it. content: None if it is a blob."""

    hash: str
    content: bytes | None


class Contents(ABC):
    """The part of `protocol.FileStore` that is the same in both dialects."""

    def __init__(self, folders: BlobFolders, tenant_id: str) -> None:
        self._folders = folders
        self._tenant_id = tenant_id

    @abstractmethod
    async def _identity(self) -> str:
        """What tells this database from all others, also from a new one of the same name; a copy of it has the same."""

    @abstractmethod
    async def _content(self, job_id: UUID, path: str, *, is_input: bool, attempt: int) -> ContentRow | None:
        """The content of a file; None if the job has no such file."""

    @abstractmethod
    async def _blobs_in_use(self, hashes: Sequence[str]) -> Collection[str]:
        """Those of these hashes that rows have as blobs."""

    @abstractmethod
    async def _forget_rows(self) -> int:
        """Delete the rows of files whose job was never stored, and of contents that no file has; return how many contents."""

    def limit(self) -> int:
        """See `protocol.FileStore.limit`."""
        return self._folders.settings.limit

    async def keep(self, path: str, source: Readable, *, most: int | None = None) -> NewFile:
        """See `protocol.FileStore.keep`."""
        settings = self._folders.settings
        most = settings.limit if most is None else most
        blobs = await self.blobs()

        def work(stop: Event) -> NewFile:
            start = _read_up_to(source, min(settings.inline, most) + 1)
            if len(start) > most:
                raise _too_large(path, most)
            if len(start) <= settings.inline:
                return NewFile.of(path, start)
            size = 0

            def pieces() -> Iterator[bytes]:
                nonlocal size
                piece = start
                while piece:
                    size += len(piece)
                    if size > most:
                        raise _too_large(path, most)
                    yield piece
                    piece = source.read(PIECE)

            hash = blobs.add(until_stopped(pieces(), stop))
            return NewFile(path, None, hash, size)

        return await in_thread(work)

    async def read_file(self, job_id: UUID, path: str, *, is_input: bool, attempt: int) -> bytes | None:
        """See `protocol.FileStore.read_file`."""
        read = io.BytesIO()
        found = await self.copy_file(job_id, path, read, is_input=is_input, attempt=attempt)
        return read.getvalue() if found else None

    async def copy_file(self, job_id: UUID, path: str, to: Writable, *, is_input: bool, attempt: int) -> bool:
        """See `protocol.FileStore.copy_file`."""
        row = await self._content(job_id, path, is_input=is_input, attempt=attempt)
        if row is None:
            return False
        blobs = await self.blobs() if row.content is None else None

        def work(stop: Event) -> None:
            if row.content is not None:
                if hashlib.sha256(row.content).hexdigest() != row.hash:
                    raise ContentDamaged(f"the content of '{path}' is not what was stored: its hash is another")
                to.write(row.content)
                return
            assert blobs is not None
            for piece in until_stopped(blobs.read(row.hash), stop):
                to.write(piece)

        await in_thread(work)
        return True

    async def forget_contents(self) -> int:
        """See `protocol.FileStore.forget_contents`."""
        forgotten = await self._forget_rows()
        blobs, before = await self.blobs(), time.time() - KEPT_SECONDS
        portions = blobs.old(before)
        while hashes := await in_thread(lambda _: next(portions, None)):
            used = await self._blobs_in_use(hashes)
            unused = [hash for hash in hashes if hash not in used]
            await in_thread(lambda _, unused=unused: [blobs.remove(hash, before) for hash in unused])  # type: ignore[misc]  # bound now
        return forgotten

    async def blobs(self) -> BlobStore:
        """The blobs of this tenant."""
        if self._folders.identity is None:
            self._folders.identity = await self._identity()
        return self._folders.of(self._folders.identity, self._tenant_id)


def _read_up_to(source: Readable, size: int) -> bytes:
    read = bytearray()
    while len(read) < size and (piece := source.read(min(PIECE, size - len(read)))):
        read += piece
    return bytes(read)


def _too_large(path: str, most: int) -> FilesTooLarge:
    return FilesTooLarge(
        f"'{path}' has more than {most:,} bytes, which is what is left of the limit", hint="raise cli_files_limit"
    )


def identity_of(made: object) -> str:
    """The identity of a database: when its schema was made, to the microsecond."""
    return hashlib.sha256(str(made).encode()).hexdigest()[:16]
