"""Keeping leases: one heartbeat for everything a worker holds, and the news that a lease is lost or a cancel was asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import structlog

from perdure.model.errors import PerdureError
from perdure.model.jobs import ClaimedJob, Lease, Outcome
from perdure.model.states import Status
from perdure.runtime.run import Run
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.lease")

CANCEL_POLL = 1.0
STUBBORN_AFTER = 10.0


@dataclass(slots=True, eq=False)
class Held:
    """A leased job: waiting in the worker's buffer (run is None) or running. `good_until` is on the store's clock and
    counted from before the request that renewed it, so it is never later than the database's own expiry."""

    claimed: ClaimedJob
    good_until: float
    since: float
    """Monotonic time (the machine's) it was claimed, and after that of its start."""
    claimed_at: float
    """When its claim was answered, by the store's clock. With `claimed.claimed_at` it tells database time, a little late: so no
    deadline comes early."""
    buffered: float = 0.0
    """Seconds it waited in the buffer before its start."""
    run: Run | None = None
    stopped_at: float | None = None


class LeaseKeeper:
    """Renews every third of the lease. A lease that cannot be renewed in time is given up before the database does."""

    def __init__(self, store: Store, worker_id: str, ttl: float, cancel_buffered: Callable[[Held], None]) -> None:
        self._cancel_buffered = cancel_buffered
        self._store = store
        self._clock = store.clock
        self._worker_id = worker_id
        self._ttl = ttl
        self.held: dict[UUID, Held] = {}

    def add(self, claimed: ClaimedJob, asked_at: float, now: float) -> Held:
        """Take charge of a claimed job; `asked_at` is the time before the claim was sent, `now` when it was answered, on the
        store's clock."""
        id = claimed.lease.job_id
        before = self.held.get(id)
        if (
            before is not None
        ):  # taken from us and claimed by us again: the former attempt must not go on beside this one
            self._lost(before)
        held = self.held[id] = Held(claimed, asked_at + self._ttl, time.monotonic(), now)
        return held

    def drop(self, held: Held) -> None:
        """The job is finished or given back."""
        id = held.claimed.lease.job_id
        if self.held.get(id) is held:
            del self.held[id]

    def fresh(self, held: Held) -> bool:
        """True while more than a third of the lease is left: only such a job may be started."""
        return held.good_until - self._clock.monotonic() > self._ttl / 3

    async def renew(self, some: list[Held], *, starting: bool = False) -> list[Held]:
        """Renew these now, marking them started if they are about to start; return those that are still ours."""
        asked_at = self._clock.monotonic()
        leases = [h.claimed.lease for h in some]
        started = [h.claimed.id for h in some if starting or (h.run is not None and h.run.began)]
        kept = await self._store.leases.heartbeat(leases, ttl=self._ttl, started=started)
        alive = []
        for held in some:
            if held.claimed.id in kept:
                held.good_until = asked_at + self._ttl
                alive.append(held)
            else:
                self._lost(held)
        return alive

    async def beat_forever(self) -> None:
        """The heartbeat: runs until cancelled, survives a database that is away."""
        while True:
            await self._clock.sleep(self._ttl / 3)
            try:
                if self.held:
                    async with asyncio.timeout(self._ttl / 2):
                        await self.renew(list(self.held.values()))
            except (PerdureError, TimeoutError) as error:
                log.warning("heartbeat failed", worker=self._worker_id, error=str(error) or "no answer")

    async def watch_clock_forever(self) -> None:
        """Give up the leases that could not be renewed, also while the database does not answer at all."""
        while True:
            first = min((h.good_until for h in self.held.values()), default=float("inf"))
            await self._clock.sleep(min(max(first - self._clock.monotonic(), 0.01), self._ttl / 10))
            self._give_up_stale()

    async def watch_cancels_forever(self) -> None:
        """Stop runs whose jobs somebody cancels: asked once a second, and at every hint."""
        async with self._store.hints.listen("work") as hints:
            while True:
                await hints.wait(CANCEL_POLL)
                if not self.held:
                    continue
                try:
                    for lease in await self._store.leases.cancel_requests(self._worker_id):
                        self._cancel(lease)
                except PerdureError as error:
                    log.warning("asking for cancels failed", worker=self._worker_id, error=str(error))
                await asyncio.sleep(0.1)

    def _cancel(self, lease: Lease) -> None:
        held = self.held.get(lease.job_id)
        if held is None or held.claimed.lease != lease:
            return
        if held.run is None:
            self._cancel_buffered(held)
            return
        now = time.monotonic()
        if held.stopped_at is None or now - held.stopped_at > STUBBORN_AFTER:
            held.stopped_at = now
            held.run.stop("cancelled", Outcome(Status.CANCELLED, reason="cancelled"))

    def _lost(self, held: Held) -> None:
        self.drop(held)
        if held.run is not None:
            held.run.lose()

    def _give_up_stale(self) -> None:
        now = self._clock.monotonic()
        for held in [h for h in self.held.values() if h.good_until <= now]:
            self._lost(held)
