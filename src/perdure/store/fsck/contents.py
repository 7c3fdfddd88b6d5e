"""Whether the contents of files are there, and are what was stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from perdure.model.errors import ContentDamaged, ContentMissing
from perdure.store.blobs.contents import Contents
from perdure.store.blobs.threads import in_thread
from perdure.store.fsck.case import Fault
from perdure.store.rows import Codec, Row


class CheckedFile(NamedTuple):
    """A file of a job. blob: its content is not in the database."""

    job_id: UUID
    path: str
    is_input: bool
    attempt: int
    hash: str
    blob: bool


def checked_file(row: Row, codec: Codec) -> CheckedFile:
    """A row of `check_blobs`."""
    return CheckedFile(
        codec.uuid(row["job_id"]), row["path"], bool(row["is_input"]), row["attempt"], row["hash"], bool(row["blob"])
    )


async def faults_of_contents(
    contents: Contents, files: Sequence[CheckedFile], *, deep: bool
) -> list[tuple[UUID, Fault]]:
    """What is wrong, by job. deep: read every content; else only see whether the blobs are there."""
    suspects = files
    if not deep and files:
        blobs = await contents.blobs()
        suspects = await in_thread(lambda _: [file for file in files if file.blob and not blobs.holds(file.hash)])
    found: list[tuple[UUID, Fault]] = []
    known: dict[str, tuple[str, str] | None] = {}
    for file in suspects:
        if file.hash not in known:
            known[file.hash] = await _problem(contents, file)
        if (problem := known[file.hash]) is not None:
            code, text = problem
            name = f"the {'input' if file.is_input else 'output'} {file.path!r:.100}"
            found.append((file.job_id, Fault(code, f"{name}: {text}")))
    return found


async def _problem(contents: Contents, file: CheckedFile) -> tuple[str, str] | None:
    """Read a content; a file that was pruned meanwhile is in order."""
    try:
        await contents.copy_file(file.job_id, file.path, _Nowhere(), is_input=file.is_input, attempt=file.attempt)
    except (ContentMissing, ContentDamaged) as error:
        return "blob-missing" if isinstance(error, ContentMissing) else "blob-damaged", error.message
    return None


class _Nowhere:
    """An open file, as far as it is written."""

    def write(self, data: bytes, /) -> None:
        """Forget it."""
