"""What clients do with jobs. Part of `protocol.Store`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol
from uuid import UUID

from perdure.model.events import Event, NewEvent
from perdure.model.explanation import Situation
from perdure.model.job_changes import NO_EVENTS, Changed, JobChange
from perdure.model.jobs import Enqueued, Head, Job, JobFilter, NewJob, Page, RunRecord
from perdure.model.states import Status
from perdure.store.tx_enqueue.caller_connection import PreparedEnqueue


class JobStore(Protocol):
    """What clients do with jobs."""

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Store a job as PENDING at version 1 with its `job_created` event and its queue row.

        - With an idempotency key already used for this (tenant, kind): the same payload returns the existing job's id with
          created=False and writes nothing; another payload raises `IdempotencyConflict` and writes nothing. Payloads are the
          same if they are equal as JSON values, however they are formatted; with an equal payload_hash they are not compared.
        - With a unique key that another job has: the id of that job, with created=False. With "replace" that job, if it is
          PENDING, gets the payload, times, priority, goal and max_retries of the new one, and an event `job_replaced`; if it has
          started, the new one is stored and has the key. With "refuse": `UniqueConflict`. A key is held until the job ends, or
          for the period.
        - Concurrent calls share one commit (batched); each returns only after its own commit.
        - A connection lost during the commit is resolved by the job's id: the call succeeds once, never twice.
        """
        ...

    async def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """As `enqueue` for all of them in one transaction, in the given order: all are stored or none.

        The jobs are read once, the later ones while the earlier ones are written. If reading them raises, so does this, and
        nothing is stored.
        Two jobs of one call may share an idempotency key: with equal payloads they are one job.
        """
        ...

    async def enqueue_recorded(
        self, job: NewJob, events: Sequence[NewEvent], *, checkpoint: str | None = None
    ) -> Enqueued:
        """As `enqueue`, for a job that begins with events recorded by another job: a fork; also for a rerun.

        - In one transaction: the job, PENDING; its log with `job_created` and then `events`, in order, as versions 2, 3, ... of
          attempt 0; and the checkpoint (JSON text) in its state.
        - Its version is the last one of that log. The first claim writes `run_started` after it.
        - A rerun takes its idempotency key over from its origin, if that is FAILED, DEADLETTER or CANCELLED; its unique key from
          a job that has ended.
        - Repeating a call whose job exists already writes nothing.
        """
        ...

    async def enqueue_many_recorded(self, jobs: Sequence[tuple[NewJob, Sequence[NewEvent]]]) -> list[Enqueued]:
        """As `enqueue_recorded` for all of them in one transaction, in the given order: all are stored or none."""
        ...

    async def enqueue_batch(self, callback: NewJob, jobs: Sequence[NewJob]) -> Enqueued:
        """Store the jobs of a batch, whose parent is the callback, and the callback, in one transaction.

        - The callback is PENDING with a wait of kind `child` for all of them, and `wait_started` as version 2 of its log. The end
          of the last of them, whatever ends it, makes it due in the same transaction: its `run_at` must be far away.
        - The jobs have no idempotency key and no unique key.
        - If the callback's idempotency key was used before, nothing is stored, as by `enqueue`. Repeating the call writes
          nothing.
        """
        ...

    async def prepare_enqueue(
        self, tx: object, jobs: Sequence[NewJob], first: Mapping[UUID, Sequence[NewEvent]] = NO_EVENTS
    ) -> PreparedEnqueue:
        """Prepare `enqueue_many` in the open transaction of a caller's connection. The returned object then does it, in the
        thread or event loop of the connection, and returns the acknowledgements. first: what the logs of jobs begin with, by
        job; of one that is there already nothing is written.

        - Rolled back (the transaction, or a savepoint around it): never enqueued. Committed: enqueued, claimable at the next
          poll. No hint is sent: only the caller knows when the transaction commits.
        - It begins and ends no transaction, with one exception: if the driver would begin one by itself before an insert, one is
          begun.
        - `UnsupportedTransaction`: perdure cannot enqueue on this object. `NoTransaction`: the driver would commit at once.
          `OtherDatabase`: the connection is to another database than this store. Those and `IdempotencyConflict` write nothing
          and leave the transaction as it was. Errors of the connection are its driver's own.
        """
        ...

    async def get_job(self, job_id: UUID) -> Job:
        """The job with its state, live lease, open waits and due time. Raises `JobNotFound`."""
        ...

    async def heads(self, job_ids: Sequence[UUID]) -> dict[UUID, Head]:
        """The version and the status of these jobs, in one read, at a cost that grows with their number alone; jobs that do not
        exist are absent."""
        ...

    async def newest_rerun(self, job_id: UUID) -> UUID:
        """The newest of the jobs that were made from this one by reruns, and by reruns of those; without any the job itself."""
        ...

    async def find_job(self, text: str) -> UUID:
        """The id that a person typed: a full UUID, or its last 6 or more hex digits if no other id ends in them (a leading `…`
        is ignored). Raises `JobNotFound`, `AmbiguousId`."""
        ...

    async def list_jobs(self, filter: JobFilter, *, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        """Jobs that match, newest first (by id), each as `get_job` gives it. A cursor continues exactly where its page
        ended. Raises `InvalidInput` for an invalid cursor. The cost of a list of live or failed jobs grows with what
        it shows, not with all jobs."""
        ...

    async def count_jobs(self, filter: JobFilter, *, by: Literal["status", "kind", "queue"]) -> dict[str, int]:
        """How many jobs match, grouped; groups without jobs are absent. Counts of live or failed jobs do not read other jobs."""
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

    async def situation(self, job_id: UUID) -> Situation:
        """The job and everything that decides whether it moves, in one snapshot. Raises `JobNotFound`.

        - ahead: due jobs of its queue and of the `kinds_served` that a claim would take before it (higher priority, or earlier
          due, or lower id), counted up to MOST_AHEAD, at a cost that does not grow with the queue; 0 where the job is not due.
        - workers: all of the tenant that have not stopped. holder and claimed_at: of its lease, if there is one.
        - pause: that of its queue which holds now.
        - approvals: those that its open waits name. events: its newest NEWEST_EVENTS, in order.
        """
        ...

    async def cancel(self, job_id: UUID, *, note: str, force: bool = False) -> Status:
        """Cancel a job in any state; return its status afterwards.

        - Unleased and not terminal: CANCELLED in this transaction.
        - Leased: `cancel_requested` is set and written to the log once (a hint wakes the holder); the status stays RUNNING
          or WAITING until the holder, or after the grace of its worker any reaper, commits CANCELLED.
        - Leased with force=True, or with an expired lease: the lease is deleted and the job CANCELLED in this transaction.
        - CANCELLED already: returned as it is. Another terminal state: `IllegalTransition`.
        """
        ...

    async def retry_now(self, job_id: UUID, *, note: str, hint: bool = True) -> None:
        """Make a RETRY job, a PENDING job with a delay, or a PARKED job that waits for code that fits, due now; writes
        `made_due`. Raises `IllegalTransition` in any other state (a job already due is left as it is, without an event),
        and for the callback of a batch that has not ended.

        hint=False: other workers find it when they poll, so that the caller, a worker that claims at once, is first."""
        ...

    async def change_jobs(self, job_ids: Sequence[UUID], change: JobChange, *, note: str) -> list[Changed]:
        """The same change of several jobs in one transaction, as `cancel` or `retry_now` does it for one, or an edit; what became
        of each, in order.

        - A job for which it is not possible is left as it is, and its answer has the error: `JobNotFound`, `IllegalTransition`,
          `InvalidInput`. The others are changed.
        - An edit writes `job_edited` with the old and the new values (of an input their hashes), and nothing where nothing
          differs. It is possible while no worker holds the job and it has not ended; another time only in PENDING and RETRY, and
          not of the callback of a batch that has not ended; another input only in PENDING, that is before the first claim. The
          input of a task cannot be edited.
        - With an idempotency key the key stands for the new input from then on.
        """
        ...

    async def rerun_jobs(
        self, jobs: Sequence[NewJob], first: Mapping[UUID, Sequence[NewEvent]] = NO_EVENTS
    ) -> list[bool]:
        """Store these jobs in one transaction, each the rerun of its `origin_id`; but not where that has a rerun already, or does
        not exist. Which were stored, in order. first: by the id of a new job the events that its log begins with.

        Two calls at once store no two reruns of one job. If the connection is lost during the commit, what that commit stored may
        be missing from the answer."""
        ...

    async def rerun_of(self, job_ids: Sequence[UUID]) -> set[UUID]:
        """Those of these jobs that have a rerun."""
        ...

    async def waiting_for_code(
        self, *, version: str, queues: Sequence[str], kinds: Sequence[str], limit: int = 100
    ) -> list[UUID]:
        """The PARKED jobs of these queues (`*`: of all) and kinds that wait for code that fits and have not met that of this
        version, at most `limit`. The cost grows with the jobs that wait for code."""
        ...
