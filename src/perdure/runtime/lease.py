"""The leases of a worker: one heartbeat renews them all; attempts that lose theirs, and cancelled ones, are stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog

from perdure.model.errors import PerdureError
from perdure.model.jobs import ClaimedJob, Lease, Outcome
from perdure.model.states import Status
from perdure.runtime.lease_times import LeaseLength
from perdure.runtime.of_agent import may_be_of_agent
from perdure.runtime.run import Run
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.lease")

CANCEL_POLL = 1.0
STOP_AGAIN_AFTER = 10.0


@dataclass(slots=True, eq=False)
class LeasedJob:
    """A leased job: in the worker's buffer (run is None), or running. `valid_until` is a time of the store's clock, counted from
    before the request that renewed the lease, so it is never later than the expiry in the database."""

    claimed: ClaimedJob
    valid_until: float
    since: float
    """When it was claimed, then when it was started, by the machine's monotonic clock."""
    claimed_at: float
    """When its claim was answered, by the store's clock. Database time is computed from it and `claimed.claimed_at`: a little
    late, so that no deadline comes early."""
    ttl: float
    """Seconds to which a write renews the lease: as long as the last renewal that the database has confirmed."""
    seconds_buffered: float = 0.0
    """Seconds it waited in the buffer before its start."""
    run: Run | None = None
    stopped_at: float | None = None
    ends_at: float | None = None
    """When the lease ends for good and is renewed no more, by the store's clock: set where the attempt has a limit."""
    renew_at: float = 0.0
    """When the next heartbeat is due, by the store's clock: for kinds with a lease of their own."""

    def renewed(self, asked_at: float, ttl: float) -> None:
        """The database has renewed the lease to `ttl` seconds from now; it was asked at `asked_at`, by the store's clock."""
        until = asked_at + ttl
        if self.ends_at is not None:
            until = min(until, self.ends_at)
        self.valid_until = max(
            self.valid_until, until
        )  # a heartbeat that was asked for later may have been answered before


class LeaseManager:
    """Renews each lease every third of its length. A lease that was not renewed in time is given up before it expires.

    ttl: seconds, of every lease at first. kinds: those whose leases are renewed to another length, and how often.
    """

    def __init__(
        self,
        store: Store,
        worker_id: str,
        ttl: float,
        cancel_buffered: Callable[[LeasedJob], None],
        *,
        kinds: Mapping[str, LeaseLength],
    ) -> None:
        self._cancel_buffered = cancel_buffered
        self._store = store
        self._clock = store.clock
        self._worker_id = worker_id
        self._ttl = ttl
        self._kinds = kinds
        self._usual = LeaseLength(ttl, 0.0)  # renewed in every round
        self._round = min([ttl / 3, *(length.every for length in kinds.values())])
        self.jobs: dict[UUID, LeasedJob] = {}
        self.slot_freed = asyncio.Event()
        """Whether a lease that held a slot of a concurrency key or of an account has ended here."""
        self.agent_left = False
        """Whether one of an agent's job has."""

    def add_all(self, claimed: Sequence[ClaimedJob], asked_at: float, now: float) -> list[LeasedJob]:
        """Renew the leases of claimed jobs from now on. `asked_at` is the time before the claim was sent, `now` when it was
        answered, by the store's clock."""
        jobs, valid_until, since = self.jobs, asked_at + self._ttl, time.monotonic()
        added = []
        for job in claimed:
            id = job.lease.job_id
            before = jobs.get(id)
            if before is not None:  # claimed again by this worker, which lost it: the former attempt must not go on
                self._lost(before)
            leased = jobs[id] = LeasedJob(job, valid_until, since, now, self._ttl)
            added.append(leased)
        return added

    def remove(self, leased: LeasedJob) -> None:
        """The job is finished or handed back: renew its lease no more."""
        id = leased.claimed.lease.job_id
        if self.jobs.get(id) is leased:
            del self.jobs[id]
        if leased.claimed.concurrency_key is not None or leased.claimed.account is not None:
            self.slot_freed.set()
        self.agent_left = self.agent_left or may_be_of_agent(leased.claimed)

    def may_start(self, leased: LeasedJob) -> bool:
        """True while more than a third of the lease is left: only such a job may be started."""
        return leased.valid_until - self._clock.monotonic() > self._ttl / 3

    async def renew(self, some: list[LeasedJob], *, starting: bool = False) -> list[LeasedJob]:
        """Renew these now, and mark them started if they are about to start; return those whose lease is live."""
        asked_at = self._clock.monotonic()
        live = await self._heartbeat(self._store, some, asked_at, starting=starting)
        if len(live) < len(some):
            kept = {leased.claimed.id for leased in live}
            for leased in some:
                if leased.claimed.id not in kept:
                    self._lost(leased)
        return live

    async def _heartbeat(
        self, store: Store, some: list[LeasedJob], asked_at: float, *, starting: bool = False
    ) -> list[LeasedJob]:
        """Those whose lease the store has renewed, each to the length of its kind."""
        if not self._kinds:
            return await self._renew_to(self._usual, store, some, asked_at, starting=starting)
        live = []
        for length in {self._length(h) for h in some}:
            of_length = [h for h in some if self._length(h) == length]
            live += await self._renew_to(length, store, of_length, asked_at, starting=starting)
        return live

    def _length(self, leased: LeasedJob) -> LeaseLength:
        return self._kinds.get(leased.claimed.kind, self._usual)

    async def _renew_to(
        self, length: LeaseLength, store: Store, some: list[LeasedJob], asked_at: float, *, starting: bool
    ) -> list[LeasedJob]:
        leases = [h.claimed.lease for h in some]
        started = [h.claimed.id for h in some if starting or (h.run is not None and h.run.began)]
        ends = {h.claimed.id: max(0.0, h.ends_at - asked_at) for h in some if h.ends_at is not None}
        for leased in some:
            leased.ttl = min(leased.ttl, length.ttl)  # a write that is answered before this one may meet either
        kept = await store.leases.heartbeat(leases, ttl=length.ttl, started=started, ends=ends)
        live = [leased for leased in some if leased.claimed.id in kept]
        for leased in live:
            leased.ttl, leased.renew_at = length.ttl, asked_at + length.every
            leased.renewed(asked_at, length.ttl)
        return live

    async def renew_from_outside(self, store: Store) -> None:
        """Renew all by another store, from another thread, while the event loop is blocked. What is lost it finds out itself."""
        some = list(self.jobs.values())
        await self._heartbeat(store, some, self._clock.monotonic())

    async def renew_forever(self) -> None:
        """The heartbeat: runs until cancelled; a database that does not answer is logged."""
        while True:
            await self._clock.sleep(self._round)
            now = self._clock.monotonic()
            due = [leased for leased in self.jobs.values() if leased.renew_at <= now]
            try:
                if due:
                    async with asyncio.timeout(self._ttl / 2):
                        await self.renew(due)
            except (PerdureError, TimeoutError) as error:
                log.warning("heartbeat failed", worker=self._worker_id, error=str(error) or "no answer")

    async def give_up_expired_forever(self) -> None:
        """Give up the leases that could not be renewed, also while the database does not answer."""
        while True:
            first = min((h.valid_until for h in self.jobs.values()), default=float("inf"))
            await self._clock.sleep(min(max(first - self._clock.monotonic(), 0.01), self._ttl / 10))
            self._give_up_expired()

    async def watch_cancels_forever(self) -> None:
        """Stop the attempts of jobs that are being cancelled: read once a second, and at every hint."""
        async with self._store.hints.listen("work") as hints:
            while True:
                await hints.wait(CANCEL_POLL)
                if not self.jobs:
                    continue
                try:
                    for lease in await self._store.leases.cancel_requests(self._worker_id):
                        self._cancel(lease)
                except PerdureError as error:
                    log.warning("reading the requests to cancel failed", worker=self._worker_id, error=str(error))
                await asyncio.sleep(0.1)

    def _cancel(self, lease: Lease) -> None:
        leased = self.jobs.get(lease.job_id)
        if leased is None or leased.claimed.lease != lease:
            return
        if leased.run is None:
            self._cancel_buffered(leased)
            return
        now = time.monotonic()
        if leased.stopped_at is None or now - leased.stopped_at > STOP_AGAIN_AFTER:
            leased.stopped_at = now
            leased.run.stop("cancelled", Outcome(Status.CANCELLED, reason="cancelled"))

    def _lost(self, leased: LeasedJob) -> None:
        self.remove(leased)
        if leased.run is not None:
            leased.run.lease_lost()

    def _give_up_expired(self) -> None:
        now = self._clock.monotonic()
        for leased in [h for h in self.jobs.values() if h.valid_until <= now]:
            self._lost(leased)
