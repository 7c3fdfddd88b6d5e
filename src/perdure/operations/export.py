"""Exporting jobs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.model.errors import InvalidInput
from perdure.operations.jobs import NO_SUCH_JOB
from perdure.operations.registry import Role, operation
from perdure.operations.selection import ALL_JOBS, JobSelection

if TYPE_CHECKING:
    from perdure import Client


@operation("jobs.export", role=Role.VIEWER, errors=(*NO_SUCH_JOB, InvalidInput))
async def export_jobs(
    client: Client, job_ids: tuple[str, ...] = (), *, which: JobSelection = ALL_JOBS, redact: bool = False
) -> AsyncGenerator[dict[str, Any], None]:
    """Jobs with all that is known of them, as JSON objects: for each a `job`, its `run`s, `approval`s, `event`s and an `end`.

    job_ids: these, in this order; none: those of `which`, newest first. redact: payloads, results and people are masked, their
    shape stays. Memory holds a few jobs or events at a time, whatever their number.
    """
    async for record in client.jobs.export(*job_ids, redact=redact, **which.arguments()):
        yield record


def line_of(record: dict[str, Any]) -> str:
    """A record as one line of JSON."""
    from perdure.runtime import export_records

    return export_records.line_of(record)


async def write_records(records: AsyncIterator[dict[str, Any]], file: Path) -> int:
    """Write records to a file, gzipped if its name ends in .gz; return the number of jobs. Raises OSError.

    They are written to another file in the same directory, which replaces it once it is complete: no reader finds half an export.
    """
    from perdure.runtime.export_file import Archive

    jobs = 0
    part = file.with_name(f".{os.getpid()}-{file.name}")
    try:
        with Archive(part) as archive:
            async for record in records:
                archive.add(line_of(record))
                jobs += record["record"] == "end"
            archive.save()
        part.replace(file)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return jobs
