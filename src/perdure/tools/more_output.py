"""Output of a run beyond what is stored while it runs, compressed on the worker's disk until the run has ended."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Self

from perdure.model.task_records import MORE_OUTPUT


class MoreOutput:
    """A compressed file for each stream, while an `async with` lasts. It has no name: no process of the run can reach it."""

    def __init__(self, folder: Path, most: int) -> None:
        """folder: on whose file system it is. most: bytes of one compressed file; what comes then is left out."""
        self._folder = folder
        self._most = most
        self._files: dict[str, tuple[IO[Any], gzip.GzipFile]] = {}
        self._open = ExitStack()

    def add(self, stream: str, data: bytes) -> None:
        """Take more of a stream. It blocks. Raises OSError."""
        if stream not in self._files:
            file = self._open.enter_context(tempfile.TemporaryFile(dir=self._folder))  # noqa: SIM115  the stack closes it
            packed = gzip.GzipFile(MORE_OUTPUT[stream], "wb", compresslevel=1, fileobj=file, mtime=0)
            self._files[stream] = file, packed
        written, packed = self._files[stream]
        if written.tell() + len(data) < self._most:
            packed.write(data)

    def finished(self) -> Iterator[tuple[str, IO[bytes]]]:
        """The path of each file, as a file of the task, and the file."""
        for stream, (file, packed) in self._files.items():
            packed.close()
            file.seek(0)
            yield MORE_OUTPUT[stream], file

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open.close()
