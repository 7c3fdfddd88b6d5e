"""The contract of a store, by role. Every method's docstring is its specification; `tests/conformance` holds
each store to it.

Promises common to all methods
- A method that changes anything has committed when it returns, and has changed nothing when it raises. The one exception
  is said where it matters: a connection lost during commit is resolved by looking, never by guessing.
- One transaction per transition: status, event, lease, queue row, run row, waits and approvals move together.
- Times are database time, UTC. Durations are seconds. JSON travels as text and is stored as that exact text.
- A store serves one tenant; rows of other tenants do not exist for it.
- Writes of a worker carry its `Lease` in their WHERE; if the lease is not the live one they raise `LeaseLost`.
- `note` is JSON text saying who, through which door and why: {"actor": ..., "door": ..., "reason": ...}.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol
from uuid import UUID

from perdure.model.approvals import Approval, ApprovalStatus, Decide, NewApproval
from perdure.model.events import Event, NewEvent
from perdure.model.explanation import Standing
from perdure.model.figures import Decided, Figures
from perdure.model.jobs import (
    ClaimedJob,
    Enqueued,
    Job,
    JobFilter,
    Lease,
    NewJob,
    Outcome,
    Page,
    Reaped,
    RunRecord,
    StatePatch,
    Wait,
)
from perdure.model.retention import StoreSizes
from perdure.model.states import Status
from perdure.model.timing import Clock
from perdure.model.workers import WorkerCommand, WorkerInfo, WorkerState
from perdure.store.fsck import CheckStore
from perdure.store.joining import Joined
from perdure.store.retention import RetentionStore

Topic = Literal["work", "news"]
"""Hints: `work` = a job may have become claimable or was asked to stop; `news` = events were committed."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered schema change and whether it has been applied (UTC)."""

    number: int
    name: str
    checksum: str
    sql: str
    applied_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """What the database has and what this version of perdure needs; `current` is 0 where there is no schema."""

    current: int
    needed: int
    server: str
    """The engine and its version, for people."""
    migrations: tuple[Migration, ...]


class SchemaStore(Protocol):
    """The schema and the database itself."""

    async def schema_status(self) -> SchemaStatus:
        """Compare the schema with what is needed; works on an empty database and on a newer schema.

        Raises `ForeignDatabase` where something of somebody else is in the way of ours.
        """
        ...

    async def migrate(self, *, beside: bool = True) -> list[Migration]:
        """Apply what is missing, in order, under a lock that admits one migrator at a time; return what was applied.

        beside: also in a SQLite file that has tables of others and no schema of ours; PostgreSQL keeps ours in one of its own.
        Raises `ForeignDatabase` where something of somebody else is in the way, `SchemaTooNew`, or `MigrationChanged` if an
        applied migration's checksum differs. A failing migration leaves nothing of itself.
        """
        ...

    async def check_schema(self) -> None:
        """Raise `SchemaMissing`, `ForeignDatabase`, `SchemaOutdated`, `SchemaTooNew` or `MigrationChanged` unless the schema fits
        exactly."""
        ...

    async def other_tables(self) -> list[str]:
        """Tables and views of the database that are not ours; PostgreSQL's with their schemas, without those of extensions."""
        ...

    async def kinds(self) -> list[str]:
        """Every kind of job in the database, of all tenants: the one look beyond the store's own. It costs a look at an index
        for each kind, however many jobs there are. The order is the database's own."""
        ...

    async def now(self) -> datetime:
        """Database time, UTC: the clock by which leases, timers, backoff and expiry are judged."""
        ...

    async def sizes(self) -> StoreSizes:
        """How much room tables and indexes take, largest first, of all tenants. Nothing is found out by reading a large table:
        rows are estimates, or counted up to a bound."""
        ...

    async def close(self) -> None:
        """Finish what was acknowledged, then release every connection. Calling it twice is fine."""
        ...


class JobStore(Protocol):
    """What clients do with jobs."""

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Store a job as PENDING at version 1 with its `job_created` event and its queue row.

        - With an idempotency key already used for this (tenant, kind): the same payload returns the existing job's id with
          created=False and writes nothing; another payload raises `IdempotencyConflict` and writes nothing. Payloads are the
          same if they are equal as JSON, however they are spelled; an equal payload_hash says so at once.
        - Concurrent calls share one commit (batched); each returns only after its own commit.
        - A connection lost during the commit is resolved by the job's id: the call succeeds once, never twice.
        """
        ...

    async def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """As `enqueue` for all of them in one transaction, in the given order: all are stored or none.

        The jobs are read once, the later ones while the earlier ones are written. What reading them raises, this raises, and
        nothing is stored.
        Two jobs of one call may share an idempotency key: with equal payloads they are one job.
        """
        ...

    async def enqueue_recorded(
        self, job: NewJob, events: Sequence[NewEvent], *, checkpoint: str | None = None
    ) -> Enqueued:
        """As `enqueue`, for a job that begins with things recorded elsewhere: a fork.

        - In one transaction: the job, PENDING; its log with `job_created` and then `events`, in order, as versions 2, 3, ... of
          attempt 0; and the checkpoint (JSON text) in its state.
        - Its version is the head of that log. The first claim writes `run_started` behind it.
        - Repeating a call whose job is there already writes nothing.
        """
        ...

    async def join(self, tx: object, jobs: Sequence[NewJob]) -> Joined:
        """Prepare `enqueue_many` in the open transaction of a caller's connection; what is returned does it, in the thread or
        event loop that the connection belongs to, and gives the acknowledgements.

        - Rolled back (the transaction, or a savepoint around it): never enqueued. Committed: enqueued, claimable at the next
          poll. No hint is sent: nobody but the caller knows when he commits.
        - It begins and ends no transaction, with one exception: where the driver would begin one by itself before an insert,
          one is begun.
        - `UnsupportedTransaction`: perdure cannot join this. `NoTransaction`: the driver would commit at once.
          `OtherDatabase`: the connection leads elsewhere than this store. Those and `IdempotencyConflict` write nothing and
          leave the transaction as it was. Errors of the connection are its driver's own.
        """
        ...

    async def get_job(self, job_id: UUID) -> Job:
        """The job with its state, live lease, open waits and due time. Raises `JobNotFound`."""
        ...

    async def find_job(self, text: str) -> UUID:
        """The id a person means: a full UUID, or 6 or more last hex digits that no other job shares (a leading `…` is
        ignored). Raises `JobNotFound`, `AmbiguousId`."""
        ...

    async def list_jobs(self, filter: JobFilter, *, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        """Jobs that match, newest first (by id). A cursor continues exactly where its page ended. Raises `InvalidInput`
        for a cursor that is none. Lists of live or failed jobs cost what they show, not what history holds."""
        ...

    async def count_jobs(self, filter: JobFilter, *, by: Literal["status", "kind", "queue"]) -> dict[str, int]:
        """How many jobs match, grouped; groups without jobs are absent. Counts of live or failed jobs do not read history."""
        ...

    async def list_runs(self, job_id: UUID) -> list[RunRecord]:
        """The finished attempts of a job, first to last."""
        ...

    async def append(self, job_id: UUID, expected_version: int, event: NewEvent) -> int:
        """Append one event to an unleased job's log if its head is `expected_version`; return the new version.

        Raises `JobNotFound`; `JobLeased` while a claim exists; `IllegalTransition` on a terminal job; `VersionMismatch` if
        the head differs. Repeating a call whose event_id is already in the log returns that event's version.
        """
        ...

    async def list_events(
        self, job_id: UUID, *, after: int = 0, limit: int = 1000, types: Sequence[str] | None = None
    ) -> list[Event]:
        """Events with a version greater than `after`, in order, at most `limit`. An unknown job has none."""
        ...

    async def standing(self, job_id: UUID) -> Standing:
        """The job and everything that decides whether it moves, in one snapshot. Raises `JobNotFound`.

        - ahead: due jobs of its lane that a claim would take before it (higher priority, or earlier due, or lower id), counted
          up to MOST_AHEAD, at a cost that does not grow with the queue; 0 where the job is not due.
        - workers: all of the tenant that have not stopped. holder and claimed_at: of its lease, if there is one.
        - approvals: those that its open waits name. events: its newest EVENTS_LOOKED_AT, in order.
        """
        ...

    async def cancel(self, job_id: UUID, *, note: str, force: bool = False) -> Status:
        """Cancel a job in any state; return its status afterwards.

        - Unleased and not terminal: CANCELLED in this transaction.
        - Leased: `cancel_requested` is set and written to the log once (a hint wakes the holder); the status stays RUNNING
          or WAITING until the holder, or after 10 s any worker's reaper, commits CANCELLED.
        - Leased with force=True, or with an expired lease: fenced and CANCELLED in this transaction.
        - CANCELLED already: returned as it is. Another terminal state: `IllegalTransition`.
        """
        ...

    async def retry_now(self, job_id: UUID, *, note: str) -> None:
        """Make a RETRY job, or a PENDING job with a delay, due now; writes `made_due`. Raises `IllegalTransition` in any
        other state (a job already due is left as it is, without an event)."""
        ...


class LeaseStore(Protocol):
    """What workers do with jobs."""

    async def claim(self, *, worker_id: str, queue: str, limit: int, ttl: float) -> list[ClaimedJob]:
        """Take up to `limit` due jobs of `queue`, in one statement.

        - Priority 9 first, then the earliest due time, then id.
        - Claimable: PENDING, RETRY, PARKED, WAITING_FOR_APPROVAL with a queue row that is due.
        - Each becomes RUNNING with attempt + 1, a claim that expires in `ttl` seconds, and a `run_started` event.
        - Two claimers never get the same job; a job locked by somebody else is skipped, not waited for.
        """
        ...

    async def next_due(self, queues: Sequence[str]) -> float | None:
        """Seconds until the next job of these queues may start or wake by itself; 0 if one is due, None if there is none."""
        ...

    async def heartbeat(self, leases: Sequence[Lease], *, ttl: float, started: Sequence[UUID] = ()) -> set[UUID]:
        """Renew the leases that are still live (same worker and attempt, not expired) to `ttl` seconds from now; return
        the job ids that were renewed: the others are lost. `started` marks those jobs as having begun user code.

        A lease whose row another session has locked is returned as well while it is live, though it is not renewed (nor
        marked): it is renewed by the first heartbeat after the lock is gone. It keeps no other lease from being renewed.
        """
        ...

    async def record(
        self,
        lease: Lease,
        events: Sequence[NewEvent],
        *,
        state: StatePatch | None = None,
        open_waits: Sequence[Wait] = (),
        close_waits: Sequence[str] = (),
    ) -> int:
        """Append the holder's events in order, patch `job_state`, open and close waits, in one commit shared with other
        callers; the database assigns dense versions, renews the lease, and marks the claim started.

        Returns the version of the last event. With no events only the state and waits change (progress).
        Raises `LeaseLost`, and then nothing was written. A connection lost during commit is resolved by the events' ids.
        """
        ...

    async def set_waiting(self, lease: Lease, waiting: bool) -> None:
        """RUNNING -> WAITING or back, keeping the claim. Raises `LeaseLost`."""
        ...

    async def finish(self, lease: Lease, outcome: Outcome) -> Status:
        """End the attempt: delete the claim, move the job, write the event and (if outcome.started) the run row; return
        the status that was committed. Calls are batched.

        - RETRY: next_retry_at = now + delay; uses_retry adds one to retry_count. If uses_retry and retry_count has reached
          max_retries the job becomes DEADLETTER instead, with the outcome's error, error_kind as given or `exhausted`,
          and without an increment.
        - PARKED and WAITING_FOR_APPROVAL: the queue row is derived from the open waits (`job_waits`): due at the earliest
          `until` or deadline; due now if an awaited approval is already decided, or if there is no wait at all; no row where
          only an answer can wake it. Decisions made meanwhile are never missed.
        - COMPLETED and the other terminal states close open waits and cancel open approvals.
        - A pending cancel request does not stop a terminal outcome: the first commit wins. An outcome that is no end (RETRY,
          PARKED, WAITING_FOR_APPROVAL) becomes CANCELLED, so that no request is lost. CANCELLED takes the canceller's note.
        Raises `LeaseLost`, and then nothing was written.
        """
        ...

    async def cancel_requests(self, worker_id: str) -> list[Lease]:
        """The live leases of this worker whose jobs somebody asked to cancel."""
        ...

    async def reap(self, *, worker_id: str, limit: int = 100) -> list[Reaped]:
        """Take jobs away from expired leases, skipping what others are working on; return what became of each.

        - cancel requested: CANCELLED.
        - started: RETRY due now with retry_count + 1, or DEADLETTER (`lease_lost`) if retries are used up.
        - never started: RETRY due now at no cost, or DEADLETTER (`lease_lost`) at the 20th such loss.
        Also commits CANCELLED for live leases whose cancel request is older than 10 s. Writes the run row with the lost
        worker's id. A job whose rows were damaged by hand is logged and left, and so it is by `claim` and `expire`.
        """
        ...

    async def expire(self, *, limit: int = 100) -> int:
        """The deadlines of things that no worker holds; return how many were settled, at most `limit` of each sort.

        - Jobs PENDING, RETRY, PARKED or WAITING_FOR_APPROVAL past their deadline: FAILED (`timeout`).
        - Approvals past expires_at: EXPIRED with an `approval_decided` event; on_expiry `fail` fails a job that is suspended
          on it, its wait still open (`expired`); otherwise the job is woken to find out.
        """
        ...


class ApprovalStore(Protocol):
    """Questions to people."""

    async def request_approval(self, lease: Lease, approval: NewApproval) -> Approval:
        """Store the approval, its wait and its `approval_requested` event, fenced by the lease. If the job already has an
        approval of this key, that one is returned and nothing is written. Raises `LeaseLost`."""
        ...

    async def replace_token(self, approval_id: UUID, token_hash: str) -> Approval:
        """Give a PENDING approval another token; the former stops working. Raises `ApprovalNotFound`, `AlreadyDecided`,
        `ApprovalExpired`."""
        ...

    async def get_approval(self, approval_id: UUID) -> Approval:
        """Raises `ApprovalNotFound`."""
        ...

    async def find_approval(self, text: str) -> UUID:
        """As `find_job`, for approvals; a job's id means its one PENDING approval, or without any the latest it asked for.
        Raises `ApprovalNotFound`, `AmbiguousId`."""
        ...

    async def list_approvals(
        self,
        *,
        statuses: Sequence[ApprovalStatus] = (),
        job_id: UUID | None = None,
        assignee: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Approval]:
        """Approvals that match, newest first. `assignee` shows those the person may decide: unassigned or naming them."""
        ...

    async def decide(self, decision: Decide) -> Approval:
        """Decide once, by database time; the first commit wins.

        - By id: ApprovalNotFound. By token: `WrongToken` if no approval has (or had, before a decision) that token.
        - Decided before: `AlreadyDecided`, also for a used token. Past expires_at: `ApprovalExpired`.
        - Approving a `question` takes an edited payload that is an object whose `outcome` is `happened` or `retry`:
          otherwise `InvalidInput`.
        - expected_digest given and different: `ApprovalChanged`. By id, with assignees that do not name `by`: `NotAssigned`.
        - Writes status, who, when, why, door and the edited payload, and an `approval_decided` event that never holds a token.
        - Denied with on_deny `fail` on a job suspended without a lease: FAILED (`denied`) in the same transaction. A job
          suspended on it otherwise gets a queue row that is due now and shows as WAITING_FOR_APPROVAL until claimed.
        """
        ...


class WorkerStore(Protocol):
    """Workers as rows, so that people can see and steer them."""

    async def register_worker(self, info: WorkerInfo) -> None:
        """Insert the worker's row, heartbeat now."""
        ...

    async def beat_worker(self, worker_id: str, *, state: WorkerState) -> WorkerCommand | None:
        """Renew the worker's row and return what an operator asks of it, if anything. A missing row is not an error."""
        ...

    async def list_workers(self, *, include_stopped: bool = False) -> list[WorkerInfo]:
        """Workers, newest first, with their live leases counted. A worker not heard of for 15 s is shown with alive=False."""
        ...

    async def command_worker(self, worker_id: str, command: WorkerCommand) -> None:
        """Ask a worker to drain or stop; a suffix of 6+ characters is accepted. Raises `WorkerNotFound`, `AmbiguousId`."""
        ...


class FigureStore(Protocol):
    """What dashboards and alerts ask for."""

    async def figures(self) -> Figures:
        """The jobs that are not finished, counted by kind, queue and status, and the approvals that are pending.

        It costs what is unfinished, and does not read what history holds. The two counts may be a moment apart.
        """
        ...

    async def decided(self, since: datetime, *, limit: int = 1000) -> list[Decided]:
        """Approvals that were approved, denied or expired at `since` (UTC) or later, earliest first, at most `limit`; those
        closed because their job ended are none of them. It costs what it returns."""
        ...


class Listener(Protocol):
    """Wakes up when a topic is hinted at. Hints are merged, may be lost, and are never the truth: always poll as well."""

    async def wait(self, timeout: float) -> bool:
        """Return True at once if a hint came since the last call, or when one comes; False after `timeout` seconds."""
        ...


class HintStore(Protocol):
    """Hints between processes that share the database."""

    def listen(self, topic: Topic) -> AbstractAsyncContextManager[Listener]:
        """Subscribe while the context is open."""
        ...


class Store(
    SchemaStore,
    JobStore,
    LeaseStore,
    ApprovalStore,
    WorkerStore,
    RetentionStore,
    FigureStore,
    HintStore,
    CheckStore,
    Protocol,
):
    """All roles together: what `open_store` returns."""

    tenant: str
    clock: Clock
    """Runs as fast as database time does: by it callers measure how far a moment of database time is away."""
