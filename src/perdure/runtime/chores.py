"""The chores of workers: what they do from time to time besides running jobs. `CHORES` lists them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import structlog

from perdure.model.errors import Conflict, NotFound, PerdureError
from perdure.model.states import Status
from perdure.runtime.cancelled_parents import cancel_children
from perdure.runtime.retention import PrunePass, Retention, prune_interval
from perdure.runtime.schedule_firing import Firing
from perdure.runtime.wake_turns import WakeTurns
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.chores")

INTERVAL = 5.0
"""Seconds between two rounds, in each of which the chores that are due run one after another; jittered."""
EACH_ROUND = 0.0
BATCH = 100
"""Jobs or approvals of one statement."""


class RunBy(StrEnum):
    """Which workers do a chore: all of them, or one at a time of those that share a tenant of a database."""

    EVERY_WORKER = "every worker"
    LEADER = "leader"


class Serves(NamedTuple):
    """The jobs that a worker runs: the version of its code, its queues, and the kinds that it has handlers for. `woken`: set when
    it has made some of them due, so that it claims at once."""

    version: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    woken: asyncio.Event


@dataclass(frozen=True, slots=True)
class ChoreContext:
    """What a chore may use. `retention`: which finished jobs this worker deletes, None for none. `serves`: None where it runs no
    jobs. `wake_turns`: of the jobs that wait for its code."""

    store: Store
    worker_id: str
    retention: Retention | None = None
    serves: Serves | None = None
    wake_turns: WakeTurns = field(default_factory=WakeTurns)


Portion = Callable[[], Awaitable[bool]]
"""Does a part of a chore, and returns True when the chore is finished."""


@dataclass(frozen=True, slots=True)
class Chore:
    """name: also of its row in `leaders`. start: begins the chore; the rounds then call the portion that it returns until that
    is finished. interval: seconds from the end of the chore to its next start, and how long a leader remains one; None: this
    worker does not do it."""

    name: str
    start: Callable[[ChoreContext], Portion]
    run_by: RunBy = RunBy.EVERY_WORKER
    interval: Callable[[ChoreContext], float | None] = lambda _: EACH_ROUND


class Reap:
    """Takes jobs from leases that have expired."""

    def __init__(self, context: ChoreContext) -> None:
        self._store = context.store
        self._worker_id = context.worker_id

    async def __call__(self) -> bool:
        """Take all of them. Raises StoreError."""
        while reaped := await self._store.leases.reap(worker_id=self._worker_id, limit=BATCH):
            for job in reaped:
                log_line = log.error if job.status is Status.DEADLETTER else log.warning
                log_line(
                    "took a job from a lost lease",
                    worker=self._worker_id,
                    job_id=str(job.job_id),
                    now=job.status,
                    lost_worker=job.worker_id,
                )
            if len(reaped) < BATCH:
                break
        return True


class Expire:
    """Applies deadlines to jobs that no worker holds, and to approvals."""

    def __init__(self, context: ChoreContext) -> None:
        self._store = context.store

    async def __call__(self) -> bool:
        """Apply all that have passed. Raises StoreError."""
        while await self._store.leases.expire(limit=BATCH) >= BATCH:
            pass
        return True


class RetryChanged:
    """Makes jobs due that wait for other code than that of the versions which they have met, if this worker is of another."""

    def __init__(self, context: ChoreContext) -> None:
        self._store = context.store
        self._worker_id = context.worker_id
        self._serves = context.serves
        self._turns = context.wake_turns

    async def __call__(self) -> bool:
        """Make some of them due. Raises StoreError."""
        if self._serves is None:
            return True
        version, queues, kinds, woken = self._serves
        limit = BATCH + self._turns.remembered
        found = await self._store.jobs.waiting_for_code(version=version, queues=queues, kinds=kinds, limit=limit)
        note = json.dumps({"actor": self._worker_id, "via": "worker", "version": version})
        for job_id in self._turns.pick(found):
            with contextlib.suppress(Conflict, NotFound):  # another worker was faster
                await self._store.jobs.retry_now(job_id, note=note, hint=False)
                woken.set()
        return len(found) < limit


class CancelChildren:
    """Cancels the children of cancelled jobs."""

    def __init__(self, context: ChoreContext) -> None:
        self._store = context.store
        self._worker_id = context.worker_id

    async def __call__(self) -> bool:
        """Cancel all of them. Raises StoreError."""
        await cancel_children(self._store, self._worker_id, "worker")
        return True


class RecheckHeld:
    """Looks at every concurrency key that has held jobs: for a free slot that nothing saw, as after a change by hand."""

    def __init__(self, context: ChoreContext) -> None:
        self._leases = context.store.leases

    async def __call__(self) -> bool:
        """Look at all of them. Raises StoreError."""
        keys = await self._leases.recheck_held()
        for _ in range(0, keys, BATCH):
            await self._leases.release_held(limit=BATCH)
        return True


def _fire_schedules(context: ChoreContext) -> Portion:
    return Firing(context.store, context.worker_id).make_many


def _prune_interval(context: ChoreContext) -> float | None:
    return None if context.retention is None else prune_interval(context.retention)


def _prune(context: ChoreContext) -> Portion:
    assert context.retention is not None
    return PrunePass(context.store, context.worker_id, context.retention)


CHORES: tuple[Chore, ...] = (
    Chore("reap", Reap),
    Chore("expire", Expire),
    Chore("cancelled parents", CancelChildren),
    Chore("changed code", RetryChanged),
    Chore("held jobs", RecheckHeld, interval=lambda _: 60.0),
    Chore("schedules", _fire_schedules),
    Chore("retention", _prune, RunBy.LEADER, _prune_interval),
)
"""Every chore, in the order of a round. A chore is added by a line here; those of what the runtime does not know, as tasks of
coding CLIs, by `Registry.add_chore`."""


class Chores:
    """Does the chores of one worker: those of CHORES, then `more`."""

    def __init__(
        self,
        store: Store,
        worker_id: str,
        serves: Serves | None = None,
        *,
        every: float = INTERVAL,
        retention: Retention | None = None,
        more: Iterable[Chore] = (),
    ) -> None:
        self._worker_id = worker_id
        self._every = every
        context = ChoreContext(store, worker_id, retention, serves)
        self._turns = [
            _Turns(chore, context, interval)
            for chore in (*CHORES, *more)
            if (interval := chore.interval(context)) is not None
        ]

    async def run_forever(self) -> None:
        """Do a round about every `every` seconds, until cancelled."""
        while True:
            await asyncio.sleep(self._every * random.uniform(0.5, 1.0))
            await self.run_once()

    async def run_once(self) -> None:
        """Do one round. A chore that fails, as when the database does not answer, is logged and goes on in the next round."""
        for turns in self._turns:
            try:
                await turns.take()
            except PerdureError as error:
                log.warning("a chore failed", chore=turns.name, worker=self._worker_id, error=str(error))
            except Exception:
                # a row that cannot be read, or a bug: the other chores go on, and this one does again
                log.exception("a chore failed", chore=turns.name, worker=self._worker_id)


class _Turns:
    """When one worker does one chore."""

    def __init__(self, chore: Chore, context: ChoreContext, interval: float) -> None:
        self.name = chore.name
        self._chore = chore
        self._context = context
        self._interval = interval
        self._not_before = 0.0
        self._portion: Portion | None = None

    async def take(self) -> None:
        """Do a portion of the chore, if it is due and, where a leader does it, this worker is the leader."""
        if self._portion is None and time.monotonic() < self._not_before:
            return
        if self._chore.run_by is RunBy.LEADER and not await self._leads():
            self._portion = None
            self._not_before = time.monotonic() + self._interval * random.uniform(0.25, 0.5)
            return
        if self._portion is None:
            self._portion = self._chore.start(self._context)
        if await self._portion():
            self._portion = None
            self._not_before = time.monotonic() + self._interval

    async def _leads(self) -> bool:
        retention, holder = self._context.store.retention, self._context.worker_id
        return await retention.lead(self.name, holder=holder, ttl=self._interval)
