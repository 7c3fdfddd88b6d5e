"""Following jobs: the events of one as they come, its end, and the states of several."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perdure.model.errors import InvalidInput, JobCancelled, JobFailed, WaitTimeout
from perdure.model.events import Event
from perdure.model.jobs import Job
from perdure.model.states import FAILURES, TERMINAL, Status
from perdure.model.timing import Duration, seconds
from perdure.operations.jobs import NO_SUCH_JOB
from perdure.operations.registry import Role, operation
from perdure.operations.selection import ALL_JOBS, JobSelection

if TYPE_CHECKING:
    from perdure import Client

MOST_WATCHED = 200
"""Jobs that `watch_jobs` takes where none is named."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Some jobs at one moment. changed: the position of the one that changed. event: what changed it."""

    jobs: tuple[Job, ...]
    changed: int | None = None
    event: Event | None = None


@operation("jobs.follow", role=Role.VIEWER, errors=NO_SUCH_JOB)
async def follow_job(
    client: Client, job_id: str, *, after: int = 0, types: tuple[str, ...] = ()
) -> AsyncGenerator[Event, None]:
    """The events of a job with a version above `after`, as they are committed; ends after the one that finishes the job.

    types: only events of these types.
    """
    async for event in client.jobs.watch(job_id, after):
        if not types or event.type in types:
            yield event


@operation("jobs.wait", role=Role.VIEWER, errors=(*NO_SUCH_JOB, InvalidInput, JobFailed, JobCancelled, WaitTimeout))
async def wait_for_job(
    client: Client,
    job_id: str,
    *,
    timeout: Duration | None = None,
    on_event: Callable[[Event], Awaitable[None]] | None = None,
) -> Job:
    """Wait until a job is finished, and return it if it is COMPLETED; a timeout does not touch it.

    on_event: called with each event of its log, from the first one on; what it raises ends the wait.
    """
    if on_event is None:
        job = await client.jobs.wait(job_id, timeout=timeout)
    else:
        job = await _followed_to_the_end(client, job_id, timeout, on_event)
    if job.status in FAILURES:
        raise JobFailed(job)
    if job.status is Status.CANCELLED:
        raise JobCancelled(job)
    return job


async def _followed_to_the_end(
    client: Client, job_id: str, timeout: Duration | None, on_event: Callable[[Event], Awaitable[None]]
) -> Job:
    limit = None if timeout is None else seconds(timeout)
    try:
        async with asyncio.timeout(limit):
            async for event in client.jobs.watch(job_id):
                await on_event(event)
    except TimeoutError:
        job = await client.jobs.get(job_id)
        raise WaitTimeout(
            f"job …{job.short_id} {job.kind} is still {job.status} after {limit:g} s. It is kept, not cancelled",
            hint=f"see why: perdure jobs explain {job.short_id}",
        ) from None
    return await client.jobs.get(job_id)


@operation("jobs.watch", role=Role.VIEWER, errors=(*NO_SUCH_JOB, InvalidInput))
async def watch_jobs(
    client: Client,
    job_ids: tuple[str, ...] = (),
    *,
    which: JobSelection = ALL_JOBS,
    every: float | None = None,
) -> AsyncGenerator[Watched, None]:
    """Several jobs until all of them are finished: how they stand at first, and again after each change of state.

    job_ids: these jobs; none: those of `which` that are not finished, 200 at most. every: instead of waiting for changes of
    state, read the jobs at intervals of this many seconds; so progress is seen as well. Yields nothing where there is no job.
    """
    jobs = await _chosen(client, job_ids, which)
    if not jobs:
        return
    yield Watched(tuple(jobs))
    if every is not None:
        while not all(job.status.terminal for job in jobs):
            await asyncio.sleep(every)
            jobs = [job if job.status.terminal else await client.jobs.get(job.id) for job in jobs]
            yield Watched(tuple(jobs))
        return
    changes: asyncio.Queue[_Change | asyncio.Task[None]] = asyncio.Queue()
    followers = {asyncio.create_task(_report_changes(client, n, job, changes)) for n, job in enumerate(jobs)}
    for follower in followers:
        follower.add_done_callback(changes.put_nowait)
    try:
        while followers:
            change = await changes.get()
            if isinstance(change, asyncio.Task):
                followers.remove(change)
                change.result()
                continue
            number, jobs[number], event = change
            yield Watched(tuple(jobs), number, event)
    finally:
        for follower in followers:
            follower.cancel()
        await asyncio.gather(*followers, return_exceptions=True)


_Change = tuple[int, Job, Event]


async def _chosen(client: Client, job_ids: tuple[str, ...], which: JobSelection) -> list[Job]:
    if not job_ids:
        which = replace(which, status=which.status or tuple(s for s in Status if s not in TERMINAL))
        return list((await client.jobs.list(**which.arguments(), limit=MOST_WATCHED)).items)
    if which:
        raise InvalidInput("watch takes ids or filters, not both")
    return [await client.jobs.get(id) for id in job_ids]


async def _report_changes(
    client: Client, number: int, job: Job, changes: asyncio.Queue[_Change | asyncio.Task[None]]
) -> None:
    if job.status.terminal:
        return
    async for event in client.jobs.watch(job.id, job.version - 1):
        if event.new_status is not None:
            changes.put_nowait((number, await client.jobs.get(job.id), event))
