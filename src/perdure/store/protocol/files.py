"""The files of jobs. Part of `protocol.Store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from perdure.model.jobs import Lease
from perdure.model.task_records import JobFile, NewFile
from perdure.store.protocol.blobs import Readable, Writable


class FileStore(Protocol):
    """The input and output files of jobs. Contents are stored once for each tenant, by their hash: small ones in the
    database, large ones in the blob directory."""

    def limit(self) -> int:
        """Bytes of all input files of a task together, and of all output files of a run together."""
        ...

    async def keep(self, path: str, source: Readable, *, most: int | None = None) -> NewFile:
        """Read a content to its end, and give what `add_inputs` and `add_outputs` take. A large one is put into the blob
        directory, piece by piece, and survives a crash when this returns; one that no file is stored for goes after a day, by
        `forget_contents`. most: bytes, `limit` unless given. Raises FilesTooLarge, BlobDirUnusable.
        """
        ...

    async def add_inputs(self, job_id: UUID, files: Sequence[NewFile]) -> None:
        """Store the inputs of a job that is about to be enqueued under this id, in one transaction."""
        ...

    async def drop_inputs(self, job_id: UUID) -> None:
        """Delete the inputs of a job that was not enqueued after all."""
        ...

    async def add_outputs(self, lease: Lease, files: Sequence[NewFile]) -> None:
        """Store what the attempt of this lease wrote, in one transaction; what it stored earlier under the same path is
        replaced. Raises `LeaseLost`, and then nothing was written."""
        ...

    async def list_files(self, job_id: UUID) -> list[JobFile]:
        """The inputs of a job, then its outputs by attempt; each by path."""
        ...

    async def read_file(self, job_id: UUID, path: str, *, is_input: bool, attempt: int) -> bytes | None:
        """The content of a file, all of it in memory; None if the job has no such file. Raises as `copy_file`."""
        ...

    async def copy_file(self, job_id: UUID, path: str, to: Writable, *, is_input: bool, attempt: int) -> bool:
        """Write the content of a file to an open file, piece by piece; False if the job has no such file.

        Raises ContentMissing where this machine does not have it, ContentDamaged, at the end, where its hash is not the one that
        was stored.
        """
        ...

    async def forget_contents(self) -> int:
        """Delete contents that no file has, and inputs of jobs that were never stored, a day after they were written; return the
        number of contents. Contents of files that are being added are left alone. Blobs that no content refers to are deleted a
        day after they were added."""
        ...
