"""What workers do with jobs of one tenant."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from uuid import UUID

from perdure.model.effects import Effect, spawns
from perdure.model.errors import PerdureError, StoreError
from perdure.model.events import NewEvent
from perdure.model.jobs import ClaimedJob, Lease, Outcome, Reaped, Wait, lane_of
from perdure.model.states import Status
from perdure.store.errors import check_end
from perdure.store.group_commit.limits import MOST_ITEMS, end_chunks, text_of_outcome, text_of_record
from perdure.store.protocol.leases import NO_ENDS, NO_LIMITS, KindLimit, task_kinds
from perdure.store.rows import wait_of
from perdure.store.sqlite.engine.batch import NEWS, NOTHING, WORK
from perdure.store.sqlite.engine.codec import CODEC, span
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.leases import heartbeat
from perdure.store.sqlite.leases.claim import claim
from perdure.store.sqlite.leases.expire import expire
from perdure.store.sqlite.leases.finish import complete_each, finish_each, finish_item, settle_each
from perdure.store.sqlite.leases.limited import recheck_held, release_held
from perdure.store.sqlite.leases.reap import reap
from perdure.store.sqlite.leases.record import record_each, record_item


class SqliteLeases:
    """See `protocol.LeaseStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
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
        return await claim(
            self._engine,
            self._tenant_id,
            worker_id=worker_id,
            queue=queue,
            kinds=kinds,
            limit=limit,
            ttl=ttl,
            version=version,
            limits=limits,
        )

    async def release_held(self, *, limit: int = 100) -> int:
        """See `protocol.LeaseStore.release_held`."""
        if await self._engine.row("any_freed", tenant_id=self._tenant_id) is None:
            return 0  # a look takes no lock
        return await self._engine.write(lambda conn, now: release_held(conn, now, self._tenant_id, limit), WORK)

    async def recheck_held(self) -> int:
        """See `protocol.LeaseStore.recheck_held`."""
        return await self._engine.write(lambda conn, _: recheck_held(conn, self._tenant_id), NOTHING)

    async def next_due(
        self, queues: Sequence[str], kinds: Collection[str], limits: Mapping[str, KindLimit] = NO_LIMITS
    ) -> float | None:
        """See `protocol.LeaseStore.next_due`."""
        lanes = json.dumps([lane_of(self._tenant_id, queue) for queue in queues])
        tasks = task_kinds(kinds, limits)
        others = json.dumps([kind for kind in kinds if kind not in tasks])
        rows = await self._engine.rows("next_due", lanes=lanes, kinds=others)
        if tasks:
            tools = json.dumps([kind.tool for kind in tasks.values()])
            of = {"tenant_id": self._tenant_id, "lanes": lanes}
            rows += await self._engine.rows("next_task_due", **of, kinds=json.dumps([*tasks]), tools=tools)
        return min((max(0.0, row["left"] / 1_000_000) for row in rows if row["left"] is not None), default=None)

    async def waiting_queues(self, kinds: Collection[str]) -> dict[str, bool]:
        """See `protocol.LeaseStore.waiting_queues`."""
        prefix = lane_of(self._tenant_id, "")
        rows = await self._engine.rows("waiting_lanes", kinds=json.dumps([*kinds]), prefix=prefix)
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
        begun = set(started)
        return await self._engine.write(
            lambda conn, now: heartbeat.renew(conn, now, self._tenant_id, leases, span(ttl), begun, ends),
            NOTHING,
        )

    async def record(
        self,
        lease: Lease,
        events: Sequence[NewEvent],
        *,
        effects: Sequence[Effect] = (),
    ) -> int:
        """See `protocol.LeaseStore.record`."""
        item = record_item(self._tenant_id, lease, events, effects)
        topics = NEWS | WORK if effects and spawns(effects) else NEWS
        return await self._engine.batch(record_each, item, topics, text_of_record(events, effects))

    async def read_wait(self, lease: Lease, kind: str, key: str) -> Wait | None:
        """See `protocol.LeaseStore.read_wait`."""
        row = await self._engine.row(
            "read_wait", job_id=str(lease.job_id), kind=kind, key=key, tenant_id=self._tenant_id
        )
        return None if row is None else wait_of(row, CODEC)

    async def set_waiting(self, lease: Lease, waiting: bool) -> None:
        """See `protocol.LeaseStore.set_waiting`."""
        await self._engine.write(
            lambda conn, now: heartbeat.set_waiting(conn, now, self._tenant_id, lease, waiting),
            NEWS,
        )

    async def finish(self, lease: Lease, outcome: Outcome, *, effects: Sequence[Effect] = ()) -> Status:
        """See `protocol.LeaseStore.finish`."""
        check_end(lease, outcome)
        woken: list[bool] = []
        item = finish_item(self._tenant_id, lease, outcome, effects, woken)
        if outcome.status is Status.COMPLETED:
            status = await self._engine.batch(complete_each, item, NEWS, text_of_outcome(outcome))
            if woken:
                self._engine.hint(WORK)
            return status
        return await self._engine.batch(settle_each, item, NEWS | WORK, text_of_outcome(outcome))

    async def finish_many(self, ends: Sequence[tuple[Lease, Outcome]]) -> list[Status | Exception]:
        """See `protocol.LeaseStore.finish_many`."""
        for lease, outcome in ends:
            check_end(lease, outcome)
        results: list[Status | Exception] = []
        woken: list[bool] = []
        for portion in end_chunks(ends, self._engine.share(MOST_ITEMS)):
            items = [finish_item(self._tenant_id, lease, outcome, (), woken) for lease, outcome in portion]
            all_completed = all(outcome.status is Status.COMPLETED for _, outcome in portion)
            try:
                topics = NEWS if all_completed else NEWS | WORK
                results += await self._engine.write(partial(finish_each, items=items), topics)
            except StoreError as error:
                results += [error] * len(items)
            except PerdureError:  # of one of them: the others are written without it
                singles = [self.finish(lease, outcome) for lease, outcome in portion]
                results += await asyncio.gather(*singles, return_exceptions=True)  # type: ignore[arg-type]  # a cancellation ends this call as well
        if woken:
            self._engine.hint(WORK)
        return results

    async def cancel_requests(self, worker_id: str) -> list[Lease]:
        """See `protocol.LeaseStore.cancel_requests`."""
        rows = await self._engine.rows("cancel_requests", worker_id=worker_id, tenant_id=self._tenant_id)
        return [Lease(UUID(row["job_id"]), row["attempt"], worker_id) for row in rows]

    async def reap(self, *, worker_id: str, limit: int = 100) -> list[Reaped]:
        """See `protocol.LeaseStore.reap`."""
        return await self._engine.write(
            lambda conn, now: reap(conn, now, self._tenant_id, worker_id, limit),
            WORK | NEWS,
        )

    async def expire(self, *, limit: int = 100) -> int:
        """See `protocol.LeaseStore.expire`."""
        return await self._engine.write(
            lambda conn, now: expire(conn, now, self._tenant_id, limit),
            WORK | NEWS,
        )
