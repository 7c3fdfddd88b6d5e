"""Controlling jobs: cancel, retry now, run again, fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from perdure.model.errors import (
    IllegalTransition,
    InvalidInput,
    InvalidPriority,
    JobPruned,
    NegativeDelay,
    NotJson,
    StepNotFound,
    TooLarge,
)
from perdure.model.jobs import Job
from perdure.model.states import Status
from perdure.model.steps import steps_of
from perdure.model.timing import Duration
from perdure.operations.jobs import NO_SUCH_JOB
from perdure.operations.registry import UNSET, Role, Unset, operation

if TYPE_CHECKING:
    from perdure import Client


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job after it was controlled."""

    id: UUID
    status: Status


@dataclass(frozen=True, slots=True)
class Fork:
    """A new job made from another one. kept: how many recorded steps it has from that one, and does not run again."""

    id: UUID
    origin_id: UUID
    kept: int


@operation("jobs.cancel", role=Role.OPERATOR, errors=(*NO_SUCH_JOB, IllegalTransition, InvalidInput))
async def cancel_job(client: Client, job_id: str, *, reason: str | None = None, force: bool = False) -> JobStatus:
    """Cancel a job in any state. A running one is stopped by its worker; the status is not CANCELLED before that.

    force: do not wait for its worker, take its lease away at once.
    """
    job = await client.jobs.get(job_id)
    return JobStatus(job.id, await client.jobs.cancel(job.id, reason, force=force))


@operation("jobs.retry_now", role=Role.OPERATOR, errors=(*NO_SUCH_JOB, IllegalTransition, InvalidInput))
async def retry_job_now(client: Client, job_id: str, *, reason: str | None = None) -> JobStatus:
    """Make a job due now that waits for its next attempt, for a delayed start, or for code that fits what it recorded."""
    job = await client.jobs.get(job_id)
    await client.jobs.retry_now(job.id, reason)
    return JobStatus(job.id, (await client.jobs.get(job.id)).status)


@operation("jobs.rerun", role=Role.OPERATOR, errors=(*NO_SUCH_JOB, JobPruned, InvalidInput))
async def rerun_job(client: Client, job_id: str, *, reason: str | None = None) -> Job:
    """A new job with the same input; the old one stays as it is."""
    handle = await client.jobs.rerun(job_id, reason)
    return await client.jobs.get(handle.id)


@operation(
    "jobs.edit",
    role=Role.OPERATOR,
    errors=(*NO_SUCH_JOB, IllegalTransition, InvalidInput, InvalidPriority, NegativeDelay, NotJson, TooLarge),
)
async def edit_job(
    client: Client,
    job_id: str,
    *,
    priority: int | None = None,
    run_at: datetime | None = None,
    delay: Duration | None = None,
    input: Any | Unset = UNSET,
    reason: str | None = None,
) -> Job:
    """Give a job that no worker holds another priority, time or input; what is not given stays. Its log says what changed."""
    given = {} if input is UNSET else {"input": input}
    return await client.jobs.edit(job_id, priority=priority, run_at=run_at, delay=delay, reason=reason, **given)


@operation("jobs.delete", role=Role.OPERATOR, errors=(*NO_SUCH_JOB, IllegalTransition))
async def delete_job(client: Client, job_id: str, *, reason: str | None = None) -> UUID:
    """Delete a job that has ended, permanently; return its id."""
    job = await client.jobs.get(job_id)
    await client.jobs.delete(job.id, reason)
    return job.id


@operation("jobs.fork", role=Role.OPERATOR, errors=(*NO_SUCH_JOB, StepNotFound, JobPruned, InvalidInput))
async def fork_job(
    client: Client,
    job_id: str,
    from_step: str | None = None,
    *,
    input: Any | Unset = UNSET,
    changes: Mapping[str, Any] | None = None,
    reason: str | None = None,
) -> Fork:
    """A new job that keeps the steps recorded before `from_step` and runs from there on. The old one stays as it is.

    from_step: the name of a step or its number; None keeps all that was recorded. input: another input. changes: parts of the
    input that get another value, by their path: {"tone": "short", "items.0": 3}; the path "" is the whole input.
    """
    old = await client.jobs.get(job_id)
    given = old.payload if input is UNSET else input
    for path, value in (changes or {}).items():
        given = _with_part(given, path.split(".") if path else [], value, path)
    changed = {} if input is UNSET and not changes else {"input": given}
    handle = await client.jobs.fork(old.id, from_step, reason=reason, **changed)
    kept = sum(step.kept for step in steps_of(await client.jobs.events(handle.id)))
    return Fork(handle.id, old.id, kept)


def _with_part(value: Any, names: Sequence[str], new: Any, path: str) -> Any:
    """A value with the part at a path replaced."""
    if not names:
        return new
    name, *deeper = names
    if isinstance(value, dict):
        if deeper and name not in value:
            raise InvalidInput(
                f"input.{path}: there is no '{name}' in the input", hint=f"known: {', '.join(value) or 'nothing'}"
            )
        return {**value, name: _with_part(value.get(name), deeper, new, path)}
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        place = int(name)
        return [*value[:place], _with_part(value[place], deeper, new, path), *value[place + 1 :]]
    kind = f"a list of {len(value)}" if isinstance(value, list) else "no object"
    raise InvalidInput(f"input.{path}: '{name}' cannot be set in what is {kind}")
