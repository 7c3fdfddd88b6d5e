"""What workers do with jobs of one tenant."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from perdure.model.effects import Effect
from perdure.model.events import NewEvent
from perdure.model.jobs import (
    MAX_LOST_STARTS,
    MAX_SUSPICION,
    SUSPECT_AT,
    ClaimedJob,
    Lease,
    Outcome,
    Reaped,
    Wait,
    lane_of,
)
from perdure.model.states import Status
from perdure.store.errors import check_end
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.engine import Engine
from perdure.store.postgres.leases import heartbeat
from perdure.store.postgres.leases.claim import claim
from perdure.store.postgres.leases.expire import expire
from perdure.store.postgres.leases.finish import Ending
from perdure.store.postgres.leases.record import Entry
from perdure.store.postgres.leases.tasks import TaskClaim, claim_tasks
from perdure.store.protocol.leases import NO_ENDS, NO_LIMITS, KindLimit, task_kinds
from perdure.store.rows import wait_of


class PostgresLeases:
    """See `protocol.LeaseStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._database = engine.database
        self._connection = engine.lease_connection
        self._tenant_id = tenant_id

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
        """See `protocol.LeaseStore.claim`."""
        if limit <= 0 or not kinds:
            return []
        self._connection.limit_for(ttl)
        tasks = task_kinds(kinds, limits)
        claimed: list[ClaimedJob] = []
        if tasks:
            others = [kind for kind in kinds if kind not in tasks]
            who = TaskClaim(self._tenant_id, queue, worker_id, tasks, kinds, others, ttl, version)
            claimed = await claim_tasks(self._database, who, limit)
            kinds = {kind: kinds[kind] for kind in others}
        if kinds and len(claimed) < limit:
            claimed += await claim(
                self._connection,
                self._tenant_id,
                worker_id=worker_id,
                queue=queue,
                kinds=kinds,
                limit=limit - len(claimed),
                ttl=ttl,
                version=version,
                limits=limits,
            )
        if claimed:
            self._engine.notifier.notify(self._tenant_id, "news")
            self._engine.vacuum.claimed(len(claimed))
        return claimed

    async def release_held(self, *, limit: int = 100) -> int:
        """See `protocol.LeaseStore.release_held`."""
        [row] = await self._connection.rows("release_held", tenant_id=self._tenant_id, limit=limit)
        released: int = row["released"]
        if released:
            self._engine.notifier.notify(self._tenant_id, "work")
        return released

    async def recheck_held(self) -> int:
        """See `protocol.LeaseStore.recheck_held`."""
        row = await self._database.row("recheck_held", tenant_id=self._tenant_id)
        return 0 if row is None else row["keys"]

    async def next_due(
        self, queues: Sequence[str], kinds: Collection[str], limits: Mapping[str, KindLimit] = NO_LIMITS
    ) -> float | None:
        """See `protocol.LeaseStore.next_due`."""
        lanes = [lane_of(self._tenant_id, queue) for queue in queues]
        tasks = task_kinds(kinds, limits)
        others = [kind for kind in kinds if kind not in tasks]
        rows = await self._connection.rows("next_due", lanes=lanes, kinds=others) if others else []
        if tasks:
            tools = [kind.tool for kind in tasks.values()]
            of = {"tenant_id": self._tenant_id, "lanes": lanes}
            rows += await self._database.rows("next_task_due", **of, kinds=[*tasks], tools=tools)
        return min((max(0.0, row["seconds"]) for row in rows if row["seconds"] is not None), default=None)

    async def waiting_queues(self, kinds: Collection[str]) -> dict[str, bool]:
        """See `protocol.LeaseStore.waiting_queues`."""
        prefix = lane_of(self._tenant_id, "")
        rows = await self._connection.rows("waiting_lanes", kinds=[*kinds], prefix=prefix)
        return {row["lane"][len(prefix) :]: bool(row["due"]) for row in rows}

    async def heartbeat(
        self,
        leases: Sequence[Lease],
        *,
        ttl: float,
        started: Sequence[UUID] = (),
        ends: Mapping[UUID, float] = NO_ENDS,
    ) -> set[UUID]:
        """See `protocol.LeaseStore.heartbeat`."""
        if not leases:
            return set()
        self._connection.limit_for(ttl)
        return await heartbeat.renew(self._connection, self._tenant_id, leases, ttl=ttl, started=started, ends=ends)

    async def read_wait(self, lease: Lease, kind: str, key: str) -> Wait | None:
        """See `protocol.LeaseStore.read_wait`."""
        row = await self._database.row("read_wait", job_id=lease.job_id, kind=kind, key=key, tenant_id=self._tenant_id)
        return None if row is None else wait_of(row, CODEC)

    async def set_waiting(self, lease: Lease, waiting: bool) -> None:
        """See `protocol.LeaseStore.set_waiting`. Asking for what is already so changes nothing."""
        await heartbeat.set_waiting(self._database, self._tenant_id, lease, waiting)
        self._engine.notifier.notify(self._tenant_id, "news")

    async def cancel_requests(self, worker_id: str) -> list[Lease]:
        """See `protocol.LeaseStore.cancel_requests`."""
        rows = await self._database.rows("cancel_requests", worker_id=worker_id, tenant_id=self._tenant_id)
        return [Lease(row["job_id"], row["attempt"], worker_id) for row in rows]

    async def record(
        self,
        lease: Lease,
        events: Sequence[NewEvent],
        *,
        effects: Sequence[Effect] = (),
    ) -> int:
        """See `protocol.LeaseStore.record`."""
        entry = Entry(self._tenant_id, lease, events, effects)
        if len(events) == 1 and not effects:
            return await self._engine.events.submit(entry)
        return await self._engine.entries.submit(entry)

    async def finish(self, lease: Lease, outcome: Outcome, *, effects: Sequence[Effect] = ()) -> Status:
        """See `protocol.LeaseStore.finish`."""
        ending = Ending(self._tenant_id, lease, outcome, effects)
        if outcome.status is Status.COMPLETED and not effects:
            return await self._engine.completions.submit(ending)
        check_end(lease, outcome)
        endings = self._engine.endings_with_effects if effects else self._engine.endings
        return await endings.submit(ending)

    async def finish_many(self, ends: Sequence[tuple[Lease, Outcome]]) -> list[Status | Exception]:
        """See `protocol.LeaseStore.finish_many`."""
        completed: list[Ending] = []
        others: list[Ending] = []
        for lease, outcome in ends:
            if outcome.status is Status.COMPLETED:
                completed.append(Ending(self._tenant_id, lease, outcome))
            else:
                check_end(lease, outcome)
                others.append(Ending(self._tenant_id, lease, outcome))
        if not others:
            return await self._engine.completions.submit_many(completed)
        if not completed:
            return await self._engine.endings.submit_many(others)
        of_completed, of_others = map(
            iter,
            await asyncio.gather(
                self._engine.completions.submit_many(completed), self._engine.endings.submit_many(others)
            ),
        )
        return [next(of_completed if o.status is Status.COMPLETED else of_others) for _, o in ends]

    async def reap(self, *, worker_id: str, limit: int = 100) -> list[Reaped]:
        """See `protocol.LeaseStore.reap`."""
        rows = await self._database.sweep(
            "reap",
            "reapable",
            tenant_id=self._tenant_id,
            limit=limit,
            reaper=worker_id,
            max_lost_starts=MAX_LOST_STARTS,
            max_suspicion=MAX_SUSPICION,
            suspect_at=SUSPECT_AT,
        )
        if rows:
            self._engine.notifier.notify(self._tenant_id, "work", "news")
        return [Reaped(row["id"], Status(row["status"]), row["worker_id"], row["kind"]) for row in rows]

    async def expire(self, *, limit: int = 100) -> int:
        """See `protocol.LeaseStore.expire`."""
        count = await expire(self._database, self._tenant_id, limit=limit)
        if count:
            self._engine.notifier.notify(self._tenant_id, "work", "news")
        return count
