"""What workers do with jobs. Part of `protocol.Store`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol
from uuid import UUID

from perdure.model.account_choice import TaskKind
from perdure.model.effects import Effect
from perdure.model.events import NewEvent
from perdure.model.jobs import ClaimedJob, Lease, Outcome, Reaped, Wait
from perdure.model.states import Status

NO_ENDS: Mapping[UUID, float] = MappingProxyType({})
"""Where no attempt has a limit."""


class KindLimit(NamedTuple):
    """What a handler says about the concurrency of its kind.

    key: of every job whose caller gave none; None: jobs have one only if their callers gave it. max: how many of a key run at a
    time, where neither the caller nor an operator says so; None: any number. task: of a kind whose jobs run a coding CLI, which
    need a slot of an account as well.
    """

    key: str | None = None
    max: int | None = None
    task: TaskKind | None = None


NO_LIMITS: Mapping[str, KindLimit] = MappingProxyType({})
"""Where no handler has a limit."""


def task_kinds(kinds: Collection[str], limits: Mapping[str, KindLimit]) -> dict[str, TaskKind]:
    """Those of these kinds whose jobs need an account."""
    tasks = {kind: limit.task for kind, limit in limits.items() if kind in kinds}
    return {kind: task for kind, task in tasks.items() if task is not None}


class LeaseStore(Protocol):
    """What workers do with jobs."""

    async def claim(
        self,
        *,
        worker_id: str,
        queue: str,
        kinds: Mapping[str, int],
        limit: int,
        ttl: float,
        version: str | None = None,
        limits: Mapping[str, KindLimit] = NO_LIMITS,
    ) -> list[ClaimedJob]:
        """Take up to `limit` due jobs of `queue` and of these kinds, in one transaction. version: of the worker's code, for
        the event.

        - Priority 9 first, then the earliest due time, then id, whatever their kinds.
        - kinds: the `max_retries` of each. It becomes that of a job whose caller left it open, at its first claim, and stays;
          but never less than its retry_count.
        - Jobs of other kinds are not touched, and not read: however many wait at the head of the queue, they cost nothing.
        - Claimable: PENDING, RETRY, PARKED, WAITING_FOR_APPROVAL with a queue row that is due.
        - Each becomes RUNNING with attempt + 1, a claim that expires in `ttl` seconds, and a `run_started` event.
        - Of a queue that is paused (`QueueStore.pause_queue`) nothing is taken, and no job is read.
        - Two claimers never get the same job; a job locked by another session is skipped, not waited for.
        - limits: of the kinds that have one. A job with a concurrency key is taken only while fewer leases of its key exist than
          its maximum: what an operator has set for the key, else its own `max_concurrent`, else that of its kind. The lease
          then holds a slot of the key. The jobs of a key start in the order above, within their queue and kind.
        - Of a key with a rate at most so many are taken in any 60 seconds, whatever became of those that were: the starts are
          counted in the database. The others of the key are held until the next one may start.
        - A job whose key is full is held: no claim reads it until `release_held` lets it go on. Others are taken in its place.
        - A task (a kind with `task`) is taken only with a slot of an account of its tool: one that is enabled, not parked, served
          by this worker and has fewer live leases than its maximum, the least loaded first (`model.account_choice`). It waits
          where it is, however many do: a claim that finds no such account reads none of them. One that names an account that does
          not exist is taken without.
        """
        ...

    async def release_held(self, *, limit: int = 100) -> int:
        """Let held jobs go on whose keys have free slots; return how many did. It looks at the keys of which a lease has ended
        since, or whose limit or rate was changed, at most `limit` of them, and at those of which the next job may start by its
        rate: with nothing to do it costs a look at an empty table and one into an empty index.

        Of each key, queue and kind as many as there are free slots, in the order of a claim, which then decides: more than one
        process may release jobs for the same slot.
        """
        ...

    async def recheck_held(self) -> int:
        """Let `release_held` look at every key that has held jobs; return how many those are. For what nothing saw, as a change
        by hand."""
        ...

    async def next_due(
        self, queues: Sequence[str], kinds: Collection[str], limits: Mapping[str, KindLimit] = NO_LIMITS
    ) -> float | None:
        """Seconds until the next job of these queues and kinds may start or wake by itself; 0 if one is due, None if there is
        none. A task that is due already does not count: what it waits for is the end of a lease, a change of an account, or the
        time until which an account is parked, which counts. Jobs of a paused queue do not count."""
        ...

    async def waiting_queues(self, kinds: Collection[str]) -> dict[str, bool]:
        """The queues in which jobs of this tenant and of these kinds wait, and whether any of them is due. It costs a few looks
        into the index for each queue of any tenant in which jobs wait, however many those are. Paused queues are left out."""
        ...

    async def heartbeat(
        self,
        leases: Sequence[Lease],
        *,
        ttl: float,
        started: Sequence[UUID] = (),
        ends: Mapping[UUID, float] = NO_ENDS,
    ) -> set[UUID]:
        """Renew the leases that are still live (same worker and attempt, not expired) to `ttl` seconds from now; return
        the job ids that were renewed: the others are lost. `started` marks those jobs as having begun user code.

        ends: of attempts with a limit, the seconds from now until their lease ends for good. The first that is given counts;
        nothing renews the lease beyond it, and `reap` then ends the attempt as one that ran into its timeout.

        A live lease whose row another session has locked is returned as well, though it is not renewed (nor marked): the first
        heartbeat after the lock is gone renews it. Other leases are renewed meanwhile.
        """
        ...

    async def record(
        self,
        lease: Lease,
        events: Sequence[NewEvent],
        *,
        effects: Sequence[Effect] = (),
    ) -> int:
        """Append the holder's events in order and carry out the effects, in one commit shared with other callers; the database
        assigns dense versions, renews the lease, and marks the claim started.

        Effects of one statement run together; those of different statements run in the order of `LOCK_ORDER`.
        Returns the version of the last event. With no events only the effects are carried out (progress).
        Raises `LeaseLost`, and then nothing was written. A connection lost during commit is resolved by the events' ids.
        """
        ...

    async def read_wait(self, lease: Lease, kind: str, key: str) -> Wait | None:
        """The open wait of this kind and key of the lease's job; None if there is none."""
        ...

    async def set_waiting(self, lease: Lease, waiting: bool) -> None:
        """RUNNING -> WAITING or back, keeping the claim. Raises `LeaseLost`."""
        ...

    async def finish(self, lease: Lease, outcome: Outcome, *, effects: Sequence[Effect] = ()) -> Status:
        """End the attempt: carry out the effects, delete the claim, move the job, write the event and (if outcome.started) the
        run row, in one commit shared with other callers; return the status that was committed.

        - RETRY: next_retry_at = now + delay; uses_retry adds one to retry_count. If uses_retry and retry_count has reached
          max_retries the job becomes DEADLETTER instead, with the outcome's error, error_kind as given or `exhausted`,
          and without an increment.
        - PARKED and WAITING_FOR_APPROVAL: the queue row is derived from the open waits (`job_waits`): due at the earliest
          `until` or deadline; due now if one of them is answered, or if there is no wait; no row if only an answer can wake it.
          Answers given meanwhile are never missed.
        - COMPLETED and the other terminal states close open waits and cancel open approvals.
        - A pending cancel request does not stop a terminal outcome: the first commit wins. Another outcome (RETRY, PARKED,
          WAITING_FOR_APPROVAL) becomes CANCELLED, so that no request is lost. CANCELLED has the note of the cancel request.
        Raises `LeaseLost`, and then nothing was written.
        """
        ...

    async def finish_many(self, ends: Sequence[tuple[Lease, Outcome]]) -> list[Status | Exception]:
        """`finish` for each of these ends, in as few commits as their size allows; for each, in their order, what `finish` would
        have returned or raised. One that is refused, such as one whose lease was lost, keeps no other from being written.
        One whose rows another session has locked may be StoreUnreachable at once: `finish` waits for the lock.

        Raises IllegalTransition, and then nothing was written, if an outcome would keep its lease.
        """
        ...

    async def cancel_requests(self, worker_id: str) -> list[Lease]:
        """The live leases of this worker whose jobs are asked to be cancelled."""
        ...

    async def reap(self, *, worker_id: str, limit: int = 100) -> list[Reaped]:
        """Take jobs from expired leases, skipping those that other sessions have locked; return what became of each.

        - cancel requested: CANCELLED.
        - the lease had an end (see `heartbeat`), and that has passed: FAILED (`timeout`) if the job's deadline has passed, else
          RETRY due now with retry_count + 1, or DEADLETTER (`timeout`) if retries are used up.
        - started and blamed: RETRY due now with retry_count + 1, or DEADLETTER (`lease_lost`) if retries are used up.
        - started and not blamed, because other started jobs of its worker were lost as well: RETRY without using a retry, its
          `suspicion` one higher, a little later than those. `model.settlement.is_blamed` is the rule.
        - never started: RETRY due now without using a retry, or DEADLETTER (`lease_lost`) at the 20th such loss.
        Also commits CANCELLED for live leases whose cancel request is older than the grace of their worker (10 s where it has
        no row). Writes the run row with the lost
        worker's id. A job whose rows were damaged by hand is logged and skipped, by `claim` and `expire` as well.
        """
        ...

    async def expire(self, *, limit: int = 100) -> int:
        """Apply the deadlines of jobs that no worker holds, and of approvals; return how many, at most `limit` of each.

        - Jobs PENDING, RETRY, PARKED or WAITING_FOR_APPROVAL past their deadline: FAILED (`timeout`).
        - Approvals past expires_at: EXPIRED with an `approval_decided` event. on_expiry `fail` fails a job that is suspended on
          it, if its wait is still open (`expired`); otherwise the job is woken.
        """
        ...
