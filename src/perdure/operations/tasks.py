"""Tasks: jobs that run a coding CLI. What all jobs can do is in the operations on jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from perdure.model.errors import (
    AccountDisabled,
    AccountNotFound,
    ContentDamaged,
    FileNotFound,
    IdempotencyConflict,
    IllegalTransition,
    InvalidInput,
    JobPruned,
)
from perdure.model.jobs import Enqueued, Job
from perdure.model.states import Status
from perdure.model.task_payload import KIND_PREFIX
from perdure.model.task_records import JobFile, OutputChunk, ToolRun
from perdure.model.timing import Duration
from perdure.model.tooling import TaskSpec
from perdure.operations.jobs import NO_SUCH_JOB, JobPage, JobRecord, get_job, list_jobs
from perdure.operations.registry import Role, operation
from perdure.operations.selection import ALL_JOBS, JobSelection

if TYPE_CHECKING:
    from perdure import Client


SHOWN_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task: the record of its job, its runs, and, where they were asked for, its files with their contents; None for those of
    more than SHOWN_BYTES."""

    record: JobRecord
    runs: tuple[ToolRun, ...]
    files: tuple[tuple[JobFile, bytes | None], ...] | None = None

    @property
    def job(self) -> Job:
        """Its job."""
        return self.record.job


@operation(
    "tasks.enqueue", role=Role.OPERATOR, errors=(InvalidInput, AccountNotFound, AccountDisabled, IdempotencyConflict)
)
async def enqueue_task(
    client: Client,
    task: TaskSpec,
    *,
    files: Mapping[str, bytes] | None = None,
    priority: int | None = None,
    max_attempts: int | None = None,
    delay: Duration | None = None,
    run_at: datetime | None = None,
    deadline: datetime | None = None,
    idempotency_key: str | None = None,
    goal: str | None = None,
    on_files: Callable[[], Mapping[str, Path]] | None = None,
) -> Enqueued:
    """Store a task and its input files; once this returns it is never lost. Arguments as for `Tasks.enqueue`.

    on_files: called for input files that are on the machine of the caller, by their paths in the workspace.
    """
    handle = await client.tasks.enqueue(
        task,
        files={**(files or {}), **({} if on_files is None else on_files())},
        priority=priority,
        max_attempts=max_attempts,
        delay=delay,
        run_at=run_at,
        deadline=deadline,
        idempotency_key=idempotency_key,
        goal=goal,
    )
    return Enqueued(handle.id, handle.created)


@operation("tasks.get", role=Role.VIEWER, errors=NO_SUCH_JOB)
async def get_task(client: Client, id: str, *, with_files: bool = False) -> TaskRecord:
    """A task with its runs. with_files: also its input and output files, with the contents of those up to SHOWN_BYTES."""
    record = await get_job(client, id, include=("events", "runs", "approvals"))
    job = record.job
    runs = tuple(await client.tasks.runs(job.id))
    if not with_files:
        return TaskRecord(record, runs)
    files = [
        (
            file,
            None
            if file.size > SHOWN_BYTES
            else await client.tasks.read_file(job.id, file.path, attempt=file.attempt, is_input=file.is_input),
        )
        for file in await client.tasks.files(job.id)
    ]
    return TaskRecord(record, runs, tuple(files))


@operation("tasks.files", role=Role.VIEWER, errors=NO_SUCH_JOB)
async def list_task_files(client: Client, id: str) -> list[JobFile]:
    """The files of a task: its inputs, then what each attempt wrote."""
    return await client.tasks.files(id)


@operation("tasks.copy_file", role=Role.VIEWER, errors=(*NO_SUCH_JOB, FileNotFound, ContentDamaged))
async def copy_task_file(
    client: Client,
    id: str,
    path: str,
    *,
    attempt: int | None = None,
    is_input: bool = False,
    on_piece: Callable[[bytes], object],
) -> int:
    """Read a file that a task wrote, by default by the last attempt that did, or one of its inputs; return how many bytes it has.
    on_piece: called with its content piece by piece, in a thread."""
    return await client.tasks.copy_file(id, path, _Pieces(on_piece), attempt=attempt, is_input=is_input)


class _Pieces:
    """An open file, as far as it is written."""

    def __init__(self, on_piece: Callable[[bytes], object]) -> None:
        self.write = on_piece


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """What a task has written. finished: it will write no more."""

    chunks: tuple[OutputChunk, ...]
    finished: bool


@operation("tasks.output", role=Role.VIEWER, errors=NO_SUCH_JOB)
async def read_task_output(client: Client, id: str, *, after: tuple[int, int] = (0, 0)) -> TaskOutput:
    """What the runs of a task have written so far. after: attempt and seq of the last chunk that is known."""
    job = await client.jobs.get(id)
    chunks = [chunk async for chunk in client.tasks.output(job.id, after=after)]
    return TaskOutput(tuple(chunks), job.status.terminal)


@dataclass(frozen=True, slots=True)
class Requeued:
    """A task that runs again: id is that of a new one, or `old_id` itself where it only had to wait no longer."""

    id: UUID
    old_id: UUID


@operation("tasks.requeue", role=Role.OPERATOR, errors=(*NO_SUCH_JOB, JobPruned, IllegalTransition, InvalidInput))
async def requeue_task(client: Client, id: str, *, reason: str | None = None) -> Requeued:
    """Run a task again. One that has ended: a new task with the same input, linked to it. One in RETRY: due now."""
    job = await client.jobs.get(id)
    if job.status.terminal:
        return Requeued((await client.jobs.rerun(job.id, reason)).id, job.id)
    if job.status is not Status.RETRY:
        raise IllegalTransition(
            f"task …{job.short_id} is {job.status}: only one that has ended or waits for a retry can be requeued"
        )
    await client.jobs.retry_now(job.id, reason)
    return Requeued(job.id, job.id)


@operation("tasks.list", role=Role.VIEWER, errors=(InvalidInput,))
async def list_tasks(
    client: Client,
    which: JobSelection = ALL_JOBS,
    *,
    tools: Sequence[str] = (),
    limit: int = 50,
    cursor: str | None = None,
) -> JobPage:
    """Tasks that match, newest first. tools: of these tools alone. cursor: of the last page.

    Each kind is read by its own index, so that the history of other jobs is not.
    """
    kinds = dict.fromkeys(KIND_PREFIX + tool for tool in tools) or await client.tasks.kinds()
    pages = [await list_jobs(client, replace(which, kind=(kind,)), limit=limit, cursor=cursor) for kind in kinds]
    found = sorted((job for page in pages for job in page.items), key=lambda job: job.id, reverse=True)
    shown = tuple(found[:limit])
    more = len(found) > limit or any(page.next_cursor is not None for page in pages)
    return JobPage(shown, str(shown[-1].id) if shown and more else None)
