"""The records of jobs: as stored, as enqueued, as claimed, and how an attempt ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from perdure.model.cost import ZERO
from perdure.model.ids import hash_json, short_id
from perdure.model.states import Status
from perdure.model.unique import Unique

MAX_JSON_BYTES = 1024 * 1024
"""A payload, step result, checkpoint or job result is refused above this many bytes of JSON text."""

DEFAULT_TENANT = "default"
DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 5
DEFAULT_MAX_RETRIES = 3
DEFAULT_LEASE_SECONDS = 30.0
DEFAULT_GRACE_SECONDS = 10.0
"""A handler may take that long to stop after a cancel or its timeout; then its attempt ends without it."""
MAX_LOST_STARTS = 20
"""A job whose lease is lost this often before its code started becomes DEADLETTER."""

SUSPECT_AT = 2
"""A job that was lost together with others this often runs alone in its worker."""
MAX_SUSPICION = 5
"""A job that was lost together with others this often uses a retry at the next such loss."""

# NewJob, Enqueued, Lease, ClaimedJob and Outcome are named tuples because a job needs one of each: a frozen dataclass takes four
# times as long.

ALL_QUEUES = "*"
"""Among the queues of a worker: it serves every queue. No job is in a queue of this name."""
T = TypeVar("T")


def check_name(value: object, whose: str) -> str:
    """The name of a queue or a tenant. Raises ValueError unless it is 1 to 100 printable characters without ':' or blanks."""
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= 100
        or ":" in value
        or " " in value
        or not value.isprintable()
    ):
        article = "an" if whose[0] in "aeiou" else "a"
        raise ValueError(f"{article} {whose}'s name is 1 to 100 characters without ':' or blanks, got {value!r:.120}")
    if value == ALL_QUEUES:
        raise ValueError(f"no {whose} is called '*': that means all queues of a worker")
    return value


def lane_of(tenant: str, queue: str) -> str:
    """The lane a job waits in: what a worker claims from. Tenants never share one."""
    return queue if tenant == DEFAULT_TENANT else f"{tenant}:{queue}"


class NewJob(NamedTuple):
    """A job to be enqueued, already checked. `delay` (seconds from database time) counts only without `run_at` (UTC)."""

    id: UUID
    kind: str
    payload: str  # JSON text
    queue: str = DEFAULT_QUEUE
    goal: str | None = None
    priority: int = DEFAULT_PRIORITY
    max_retries: int | None = None  # None: what the policy of its handler says when it is first claimed
    delay: float = 0.0
    run_at: datetime | None = None
    deadline: datetime | None = None
    idempotency_key: str | None = None
    origin_id: UUID | None = None
    origin_kind: str | None = None
    note: str = "{}"  # JSON text: actor, via
    concurrency_key: str | None = None
    max_concurrent: int | None = None  # None: what the handler of the worker says that claims it
    agent_id: str | None = None
    session_id: str | None = None
    tags: str | None = None  # JSON array of texts
    unique: Unique | None = None  # its period in seconds
    parent_id: UUID | None = None  # of a job of a batch: the callback

    @property
    def payload_hash(self) -> str | None:
        """What later jobs with the same idempotency key are compared with, also after the payload was pruned."""
        return None if self.idempotency_key is None else hash_json(self.payload)


class Enqueued(NamedTuple):
    """The acknowledgement of one enqueue. `created` is False if a job with the same idempotency key existed."""

    id: UUID
    created: bool


class Head(NamedTuple):
    """How far a job is: the version of its newest event, and its status."""

    version: int
    status: Status


@dataclass(frozen=True, slots=True)
class JobState:
    """What changes while a job runs: the row of `job_state`, plus the cursor (last finished step) from the log."""

    checkpoint: Any = None
    progress: float | None = None
    progress_text: str | None = None
    tokens: int = 0
    cost: Decimal = ZERO
    cursor: str | None = None


class Lease(NamedTuple):
    """The right to write to a job: its worker and attempt. Every write of a worker has both in its WHERE."""

    job_id: UUID
    attempt: int
    worker_id: str


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """The lease of a job, for people: which worker holds it, until when (UTC), and whether the job was asked to stop."""

    worker_id: str
    attempt: int
    expires_at: datetime
    started: bool
    cancel_requested_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Something a job waits for.

    kind: `timer`, `approval`, `question`, `child`, ... (see `perdure.model.waits`). subject_id: the id of what it is about.
    until (UTC): the time that ends the wait without an answer. answered_at (UTC): set by whatever answers it; the job then wakes.
    """

    key: str
    kind: str
    until: datetime | None = None
    subject_id: str | None = None
    answered_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job, with its state, lease and waits.

    kind: the name of its handler. goal: a title or message for people. payload: its input, as plain JSON values.
    version: the version of the newest event in its log, also while a worker holds it.
    priority: 1 to 9, 9 is the most urgent. attempt: the number of its newest attempt. retry_count: failures and crashes so far,
    at most max_retries, which is None until the first claim if the caller left it to the handler. run_at: the earliest time of
    its first start. next_retry_at: when it runs again, in RETRY only. deadline: when it fails instead of starting or continuing.
    origin_id: the job it was made from. origin_kind: "rerun" or "fork". result: what the handler returned, as plain JSON
    values; None before the end. error_message, error_kind: why it is FAILED or DEADLETTER. note: who changed it last and why.
    concurrency_key: jobs with the same key run at most max_concurrent at a time, which is None where the handler says how many.
    created_at: when it was enqueued. updated_at: when its status changed last. started_at: when it was claimed first.
    finished_at: when it ended. state: what changes while it runs: checkpoint, progress, usage. lease: that of the worker that
    holds it. waits: what it waits for.
    """

    id: UUID
    tenant_id: str
    kind: str
    queue: str
    goal: str | None
    payload: Any
    status: Status
    version: int
    priority: int
    attempt: int
    retry_count: int
    max_retries: int | None
    run_at: datetime
    next_retry_at: datetime | None
    deadline: datetime | None
    idempotency_key: str | None
    origin_id: UUID | None
    origin_kind: str | None
    result: Any
    error_message: str | None
    error_kind: str | None
    note: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    state: JobState = field(default_factory=JobState)
    lease: LeaseInfo | None = None
    waits: tuple[Wait, ...] = ()
    due_at: datetime | None = None
    """When it may start or wake without an answer (its queue row); None = held, finished, or only an answer wakes it."""
    concurrency_key: str | None = None
    max_concurrent: int | None = None
    held: bool = False
    """Whether it waits for a slot of its concurrency key."""
    parent_id: UUID | None = None
    """The job that spawned it."""
    agent_id: str | None = None
    """The agent whose job it is."""
    session_id: str | None = None
    """The conversation of that agent."""
    tags: tuple[str, ...] = ()
    """By which it can be listed and counted."""
    unique_key: str | None = None
    """The key that at most one job of its kind has at a time."""
    unique_until: datetime | None = None
    """Until when it has that key; None: until its end."""
    pruned_at: datetime | None = None
    """When its payload, result and checkpoint were pruned and only its log was kept; None = they are there."""

    @property
    def traceback(self) -> str | None:
        """Where its last attempt failed, in FAILED, DEADLETTER and RETRY; None where no code of the handler did."""
        text = self.note.get("traceback")
        return text if isinstance(text, str) else None

    @property
    def short_id(self) -> str:
        """The last 8 hex digits of the id."""
        return short_id(self.id)


class ClaimedJob(NamedTuple):
    """What an attempt needs of its job, as the claim returns it. `claimed_at` is database time."""

    lease: Lease
    kind: str
    queue: str
    goal: str | None
    payload: str  # JSON text
    priority: int
    version: int
    retry_count: int
    max_retries: int
    lost_starts: int
    idempotency_key: str | None
    deadline: datetime | None
    claimed_at: datetime
    expires_at: datetime
    waited: float = 0.0
    """Seconds it had been due when it was claimed."""
    suspicion: int = 0
    """How often in a row it was lost together with other jobs of its worker."""
    concurrency_key: str | None = None
    """The key whose slot its lease holds."""
    account: str | None = None
    """The account whose slot its lease holds."""

    @property
    def id(self) -> UUID:
        """The job's id."""
        return self.lease.job_id


class Outcome(NamedTuple):
    """How an attempt ends, and with it the lease.

    status: any state outside RUNNING and WAITING. delay: seconds from database time until a RETRY is due.
    uses_retry: True counts against max_retries (failures); False does not (snooze, hand-back, waking).
    """

    status: Status
    result: str | None = None  # JSON text, COMPLETED only
    error: str | None = None
    error_kind: str | None = None
    delay: float = 0.0
    uses_retry: bool = False
    reason: str | None = None
    started: bool = True
    """False if user code never ran in this attempt: no run row is written."""
    ran: float = 0.0
    """Seconds that user code ran in this attempt."""
    traceback: str | None = None
    """Of the error, for its event."""


def completed(result: str, ran: float) -> Outcome:
    """The outcome of a handler that returned: its result as JSON, after so many seconds. Made of a tuple, as that takes half as
    long and every job that succeeds needs one."""
    return tuple.__new__(Outcome, (Status.COMPLETED, result, None, None, 0.0, False, None, True, ran, None))


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One attempt, as kept in `job_runs`.

    attempt: its number. started_at: when its code began to run. outcome: the status it ended in.
    error_message, error_kind: why, if it failed.
    """

    job_id: UUID
    attempt: int
    worker_id: str
    started_at: datetime
    finished_at: datetime
    outcome: Status
    error_message: str | None
    error_kind: str | None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a list or count shows; empty tuples and None mean any. Times are UTC, `since` inclusive on creation."""

    statuses: tuple[Status, ...] = ()
    kinds: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    search: str | None = None  # part of the goal, the kind or the error message, any case
    idempotency_key: str | None = None
    tags: tuple[str, ...] = ()
    agent_id: str | None = None
    session_id: str | None = None

    @property
    def only_queued(self) -> bool:
        """Whether it asks for states in which every job has a row of the queue, and for nothing else."""
        queued = {Status.PENDING, Status.RETRY}
        return bool(self.statuses) and queued.issuperset(self.statuses) and self == JobFilter(self.statuses)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list, newest first; `next_cursor` continues it, None = that was all."""

    items: tuple[T, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Reaped:
    """A job whose lease had expired, and what it became."""

    job_id: UUID
    status: Status
    worker_id: str
    kind: str
