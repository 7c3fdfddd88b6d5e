"""The files of jobs. Part of `protocol.Store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from perdure.model.jobs import Lease
from perdure.model.task_records import JobFile, NewFile


class FileStore(Protocol):
    """The input and output files of jobs. Contents are stored once for each tenant, by their hash."""

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
        """The content of a file; None if the job has no such file."""
        ...

    async def forget_contents(self) -> int:
        """Delete contents that no file has, and inputs of jobs that were never stored, a day after they were written; return the
        number of contents. Contents of files that are being added are left alone."""
        ...
