"""Waiting for the end of a job."""

from __future__ import annotations

import asyncio
from uuid import UUID

from perdure.model.errors import JobNotFound, PerdureError, WaitInsideJob, WaitTimeout
from perdure.model.jobs import Job
from perdure.model.states import Status
from perdure.runtime.explain.explain import explain
from perdure.store.heads import moved_on
from perdure.store.protocol import Store


async def wait_for_end(store: Store, job_id: UUID, seconds: float | None) -> Job:
    """Wait until the job is finished and return it. seconds: None waits without a limit. Raises WaitTimeout, JobNotFound."""
    try:
        async with asyncio.timeout(seconds):
            while not (job := await store.jobs.get_job(job_id)).status.terminal:
                await moved_on(store, job_id)
            return job
    except TimeoutError:
        job = await store.jobs.get_job(job_id)
        if job.status.terminal:
            return job
        late = f"job …{job.short_id} {job.kind} is still {job.status} after {seconds:g} s"
        why, hints = await _why_pending(store, job)
        hint = "\n".join([*hints, f"see why: perdure jobs explain {job.short_id}"])
        raise WaitTimeout(f"{late}. {why}It is kept, not cancelled", hint=hint) from None


async def is_of(store: Store, job_id: UUID) -> bool:
    """Whether the job is in this store."""
    try:
        await store.jobs.get_job(job_id)
    except JobNotFound:
        return False
    return True


async def finished_already(store: Store, job_id: UUID) -> Job:
    """The job, which must be finished: a handler asks, whose slot the job may need. Raises WaitInsideJob, JobNotFound."""
    job = await store.jobs.get_job(job_id)
    if job.status.terminal:
        return job
    raise WaitInsideJob(
        f"a handler waits without a limit for job …{job.short_id} {job.kind}, which is {job.status}: the slot it keeps "
        "may be the one that this job needs; wait in ctx.sleep until it has ended, or give a timeout",
        hint='while not (await handle.status()).terminal: await ctx.sleep("child", "10s")',
    )


async def _why_pending(store: Store, job: Job) -> tuple[str, list[str]]:
    """Why a job has not been claimed yet, and what to do: a program that only enqueues cannot know whether a worker runs."""
    if job.status is not Status.PENDING:
        return "", []
    try:
        found = explain(await store.jobs.situation(job.id))
    except PerdureError:
        return "", []  # the timeout is to be reported, not this
    return f"{found.sentence} ", [f"{move.what}: {move.command}" for move in found.moves]
