"""Why a job is not moving and what would move it: the facts that are read, and the explanation made of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from perdure.model.agents import AgentInstance
from perdure.model.approvals import Approval
from perdure.model.events import Event
from perdure.model.ids import short_id
from perdure.model.jobs import DEFAULT_QUEUE, Job
from perdure.model.limits import Limit
from perdure.model.queues import QueuePause
from perdure.model.states import Status
from perdure.model.task_payload import KIND_PREFIX
from perdure.model.workers import WorkerInfo

MOST_AHEAD = 1000
"""Jobs ahead of one in its queue are counted up to this many."""

NEWEST_EVENTS = 30
"""How many of a job's newest events are read; not more, because each may hold a result of 1 MiB."""


SHOWN_AWAITED = 3
"""How many children of a wait are named."""


class Why(StrEnum):
    """The reason why a job is not moving; the values are stable."""

    QUEUED = "queued"
    WORKERS_BUSY = "workers_busy"
    NO_WORKER = "no_worker"
    NO_HANDLER = "no_handler"
    WORKERS_DRAINING = "workers_draining"
    DELAYED = "delayed"
    BACKOFF = "backoff"
    PUT_OFF = "put_off"
    PUT_ASIDE = "put_aside"
    LIMIT = "limit"
    PAUSED = "paused"
    ACCOUNT = "account"
    SLEEPING = "sleeping"
    APPROVAL = "approval"
    WAITING = "waiting"
    CODE = "code"
    CHILDREN = "children"
    DEADLINE_PASSED = "deadline_passed"
    RUNNING = "running"
    CANCELLING = "cancelling"
    WORKER_SILENT = "worker_silent"
    LEASE_EXPIRED = "lease_expired"
    COMPLETED = "completed"
    FAILED = "failed"
    DEADLETTER = "deadletter"
    CANCELLED = "cancelled"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class NoAccount:
    """Why a due task does not start.

    why: in words. until: when the first parked account may be used again. wanted: the account it asks for, None for any. holders:
    jobs that hold slots of these accounts, the oldest first, at most SHOWN_HOLDERS.
    """

    tool: str
    wanted: str | None
    why: str
    until: datetime | None
    holders: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class Awaited:
    """A job that a wait for children still waits for. key: of the wait. of: how many it waits for."""

    key: str
    child_id: UUID
    kind: str
    status: Status
    of: int


@dataclass(frozen=True, slots=True)
class Situation:
    """A job, and everything that decides whether it moves, read at one moment: `now`, database time, UTC.

    ahead: due jobs that come before it in its queue, of the `kinds_served`, counted up to MOST_AHEAD; 0 where it is not due.
    workers: those of its tenant that have not stopped, whatever they serve. holder: the worker whose lease it is under, also a
    stopped one. approvals: those its open waits are about, decided or not. events: its newest, in order. limit: of its
    concurrency key, where it waits for a slot. account: of a task that is due, why none of its tool's accounts has a slot for it.
    awaited: of each open wait for children, the first few that have not ended. pause: the one of its queue that holds now.
    before: jobs of its concurrency key that get a slot before it, counted up to MOST_AHEAD; 0 where it waits for none. agent:
    whose job it is. parked_by: the version of the code of its last attempt, where that parked it and its worker is known.
    """

    now: datetime
    job: Job
    ahead: int
    workers: tuple[WorkerInfo, ...]
    holder: WorkerInfo | None
    claimed_at: datetime | None
    approvals: tuple[Approval, ...]
    events: tuple[Event, ...]
    limit: Limit | None = None
    account: NoAccount | None = None
    awaited: tuple[Awaited, ...] = ()
    pause: QueuePause | None = None
    before: int = 0
    agent: AgentInstance | None = None
    parked_by: str | None = None


def kinds_served(job: Job, workers: Iterable[WorkerInfo]) -> list[str]:
    """The kinds of jobs that may be claimed before this one: its own, and what live workers of its queue have handlers for."""
    return sorted({job.kind, *(kind for w in workers if w.alive and w.serves(job.queue) for kind in w.kinds)})


@dataclass(frozen=True, slots=True)
class Move:
    """A command that would move the job: what it does, in a few words, and its command line."""

    what: str
    command: str


def start_worker(job: Job) -> Move:
    """The command that starts a worker for the job's queue."""
    queues = "" if job.queue == DEFAULT_QUEUE else f" --queues {shlex.quote(job.queue)}"
    of = "--app module:attr"
    if job.kind.startswith(KIND_PREFIX):
        of = f"--tools {shlex.quote(job.kind.removeprefix(KIND_PREFIX))}"
    return Move(f"start a worker for queue '{job.queue}'", f"perdure worker start {of}{queues}")


def done_by_a_worker(seen: Situation, does: str) -> tuple[str, tuple[Move, ...]]:
    """A clause that says which worker does something that any live worker does, and, if none is alive, the command that starts
    one."""
    if any(worker.alive for worker in seen.workers):
        return f"a live worker {does} within seconds", ()
    return f"the next worker {does}, and none is alive", (start_worker(seen.job),)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is in its status. `at` is when its facts were read, database time, UTC.

    code: the reason, for programs. sentence: the same for people. details: the facts behind it, JSON values and times; which
    ones depends on the code. moves: what would move it, best first; empty if it moves by itself.
    """

    job_id: UUID
    kind: str
    queue: str
    status: Status
    at: datetime
    code: Why
    sentence: str
    details: dict[str, Any]
    moves: tuple[Move, ...]

    @property
    def short_id(self) -> str:
        """The last 8 hex digits of the job's id."""
        return short_id(self.job_id)
