"""Collecting what a run wrote: the content of the files that its output_spec covers, without the secrets of its account."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path

from perdure.model.errors import BlobDirUnusable, FilesTooLarge, UnsafePath
from perdure.model.task_records import DIFF, OWN_FILES, NewFile
from perdure.model.tooling import check_path
from perdure.store.protocol import FileStore
from perdure.store.protocol.blobs import Readable
from perdure.tools.outputs import OutputFile, find_outputs, open_output
from perdure.tools.secrets import Masker

MAX_FILES = 1000
MAX_NAMED = 20
"""Files that were not collected, of which the reason is said."""


class Collected:
    """What is kept of a run. files: what was collected. refused: paths that were found and not collected, with the reason; the
    first of them. left_out: how many there are."""

    def __init__(self, store: FileStore, masker: Masker) -> None:
        self.files: list[NewFile] = []
        self.refused: dict[str, str] = {}
        self.left_out = 0
        self._store = store
        self._masker = masker
        self._left = store.limit()

    async def collect(self, workspace: Path, output_spec: Sequence[str]) -> None:
        """Take the files that output_spec covers."""
        for found in await asyncio.to_thread(find_outputs, workspace, output_spec):
            path, reason = self._masker.mask_text(found.path), self._problem(found)
            if reason is None:
                try:
                    with await asyncio.to_thread(open_output, workspace, found.path) as file:
                        reason = await self._keep(found.path, file)
                except OSError as error:
                    reason = error.strerror or "it cannot be read"
            if reason is not None:
                self._refuse(path, reason)

    async def add_diff(self, diff: bytes) -> None:
        """Take what a run changed in its copy of a repository, as one more file."""
        if diff and (reason := await self._keep(DIFF, io.BytesIO(diff))) is not None:
            self._refuse(DIFF, reason)

    async def add_own(self, path: str, source: Readable) -> None:
        """Take a file that perdure made of the run's output. What cannot be kept of it is left out."""
        await self._keep(path, source)

    def _problem(self, found: OutputFile) -> str | None:
        """Why a file is not even opened."""
        if len(self.files) >= MAX_FILES:
            return f"there are more than {MAX_FILES:,} files"
        if found.size > self._left:
            return self._too_large(f"it has {found.size:,} bytes")
        if found.path in OWN_FILES:
            return "perdure has a file of this name"
        if self._masker.mask_text(found.path) != found.path:
            return "its name has a secret"
        try:
            check_path(found.path)
        except UnsafePath as error:
            return error.message
        return None

    async def _keep(self, path: str, source: Readable) -> str | None:
        """Keep one content; returns why it was not kept."""
        masked = _MaskedFile(source, self._masker)
        try:
            file = await self._store.keep(path, masked, most=self._left)
        except FilesTooLarge:
            return self._too_large("it grew")
        except BlobDirUnusable as error:
            return error.message
        if masked.replaced and masked.binary:
            return "it has a secret, and is no text in which that could be replaced"
        self._left -= file.size
        self.files.append(file)
        return None

    def _too_large(self, what: str) -> str:
        return f"{what}; the limit for all files of a run is {self._store.limit():,}"

    def _refuse(self, path: str, reason: str) -> None:
        self.left_out += 1
        if len(self.refused) < MAX_NAMED:
            self.refused[path] = reason


class _MaskedFile:
    """A file as it is read without secrets. replaced: whether it had one. binary: whether it is no text."""

    def __init__(self, source: Readable, masker: Masker) -> None:
        self._source = source
        self._stream = masker.stream()
        self._ended = False
        self._ready = b""
        self.binary = False

    @property
    def replaced(self) -> bool:
        return self._stream.replaced

    def read(self, size: int, /) -> bytes:
        while not self._ready and not self._ended:
            piece = self._source.read(size)
            self.binary = self.binary or b"\0" in piece
            self._ended = not piece
            self._ready = self._stream.feed(piece) if piece else self._stream.end()
        given, self._ready = self._ready[:size], self._ready[size:]
        return given
