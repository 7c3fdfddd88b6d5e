"""The contexts of the jobs that run in this process: a view of what its workers hold, which keeps nothing of its own."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any, NamedTuple
from uuid import UUID

from perdure.model.explanation import Situation
from perdure.model.states import Status
from perdure.model.working_memory import Memory
from perdure.runtime.context.context import JobContext
from perdure.runtime.job_log import read_memory
from perdure.runtime.lease import LeasedJob
from perdure.store.protocol import Store


class HeldJobs(NamedTuple):
    """The jobs that a worker has claimed. most: how many it runs at a time. jobs: running or not. waiting: gives those that wait
    for a slot, in the order in which they start."""

    most: int
    jobs: dict[UUID, LeasedJob]
    waiting: Callable[[], list[UUID]]


class ContextManager:
    """The contexts of the jobs that run in this process, at most `max_jobs`.

    A worker registers a job when it starts an attempt and removes it when the attempt ends, is parked or loses its lease; nothing
    else does. A job that comes when all slots are taken waits, in its queue or here, and `position` says where. The next attempt
    of a job has another context, made of what is stored.
    """

    def __init__(self, workers: Callable[[], Iterable[HeldJobs]], store: Callable[[], Awaitable[Store]]) -> None:
        self._workers = workers
        self._store = store

    @property
    def max_jobs(self) -> int:
        """How many contexts there may be: the slots of the workers in this process, as their `concurrency` says."""
        return sum(held.most for held in self._workers())

    def get(self, job_id: UUID) -> JobContext | None:
        """The context that the job's handler has; None unless the job runs in this process. May be called from any thread."""
        for held in self._workers():
            leased = held.jobs.get(job_id)
            if leased is not None and leased.run is not None and isinstance(leased.run.context, JobContext):
                return leased.run.context
        return None

    def list(self) -> builtins.list[UUID]:
        """The jobs that run in this process. May be called from any thread."""
        ids = [id for held in self._workers() for id in builtins.list(held.jobs)]
        return [id for id in ids if self.get(id) is not None]

    async def snapshot(self, job_id: UUID) -> dict[str, Any] | None:
        """What the job's context knows now, as JSON values: `context` with the keys of the design document (see
        `JobContext.snapshot`), `messages`, `variables` and `tool_stack`, as they are at this line of the handler. None unless it
        runs here."""
        ctx = self.get(job_id)
        if ctx is None:
            return None
        context = await ctx.snapshot()
        working = {"messages": ctx.messages.list(), "variables": ctx.vars.all()}
        return {"context": context, **working, "tool_stack": [asdict(call) for call in ctx.tool_stack]}

    async def memory(self, job_id: UUID) -> Memory | None:
        """The working memory of a job that runs here, as its log has it; None of any other. See `Jobs.messages` for those."""
        return None if self.get(job_id) is None else await read_memory(await self._store(), job_id)

    async def position(self, job_id: UUID) -> int | None:
        """How far a job is from its start: 0 runs here, 1 is the next to start, ... None of one that does not wait for a slot.
        Of a job that no worker has claimed it counts the jobs ahead in its queue, up to a bound. Raises JobNotFound."""
        if self.get(job_id) is not None:
            return 0
        for held in self._workers():
            waiting = held.waiting()
            if job_id in waiting:
                return waiting.index(job_id) + 1
        seen: Situation = await (await self._store()).jobs.situation(job_id)
        due = seen.job.due_at is not None and seen.job.due_at <= seen.now
        return seen.ahead + 1 if due and seen.job.status in (Status.PENDING, Status.RETRY) else None

    def __contains__(self, job_id: object) -> bool:
        return isinstance(job_id, UUID) and self.get(job_id) is not None

    def __len__(self) -> int:
        return len(self.list())

    def __iter__(self) -> Iterator[UUID]:
        return iter(self.list())
