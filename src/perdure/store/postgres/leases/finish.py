"""The ends of attempts: one statement for those that completed, one for all others, each for all that arrived meanwhile."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from typing import NamedTuple
from uuid import UUID

from perdure.model.errors import IllegalTransition
from perdure.model.ids import short_id
from perdure.model.jobs import Lease, Outcome
from perdure.model.states import Status
from perdure.store.errors import lease_lost
from perdure.store.group_commit.batcher import Batcher
from perdure.store.group_commit.limits import text_of_outcome
from perdure.store.postgres.engine.hot_writer import Base, HotWriter, alike
from perdure.store.postgres.engine.transactions import Tx
from perdure.store.postgres.leases.record import Run, in_lock_order
from perdure.store.rows import Row

HOT_STATEMENTS = ("complete_many", "settle_many", "was_settled")

ENDS = frozenset({Status.COMPLETED, Status.FAILED, Status.DEADLETTER})
"""Outcomes that a pending cancel request does not turn into CANCELLED."""


class Ending(NamedTuple):
    """One call of `finish`."""

    lease: Lease
    outcome: Outcome


async def complete(run: Run, endings: Sequence[Ending], tenant: str) -> list[Status | Exception]:
    """Those that returned."""
    ordered = sorted(endings, key=in_lock_order)
    leases, outcomes = zip(*ordered, strict=True)
    ids, attempts, workers = zip(*leases, strict=True)
    rows = await run(
        "complete_many",
        ids,
        alike(attempts),
        alike(workers),
        alike([outcome.result for outcome in outcomes]),
        [outcome.ran if outcome.started else None for outcome in outcomes],
        tenant,
    )
    moved: Sequence[UUID] = rows[0]["moved"] or ()
    if len(moved) == len(endings):
        return [Status.COMPLETED] * len(endings)
    done = set(moved)
    return [Status.COMPLETED if e.lease.job_id in done else lease_lost(e.lease) for e in endings]


async def settle(run: Run, endings: Sequence[Ending], tenant: str) -> list[Status | Exception]:
    """Those that ended in any other way."""
    ordered = sorted(endings, key=in_lock_order)
    rows = await run(
        "settle_many",
        [e.lease.job_id for e in ordered],
        [e.lease.attempt for e in ordered],
        [e.lease.worker_id for e in ordered],
        [e.outcome.status.value for e in ordered],
        [e.outcome.error for e in ordered],
        [e.outcome.error_kind for e in ordered],
        [e.outcome.delay for e in ordered],
        [e.outcome.uses_retry for e in ordered],
        [e.outcome.reason for e in ordered],
        [e.outcome.started for e in ordered],
        [e.outcome.ran for e in ordered],
        tenant,
    )
    done = {row["id"]: Status(row["status"]) for row in rows}
    return [done.get(e.lease.job_id) or lease_lost(e.lease) for e in endings]


class EndingWriter(HotWriter[Ending, Status]):
    """Endings that did not complete."""

    _write = staticmethod(settle)

    async def write(self, items: Sequence[Ending]) -> Sequence[Status | Exception]:
        """See `Writer`."""
        results = await self._write(self._hot.fetch, items, self._db.tenant)
        self._ring()
        return results

    async def look(self, items: Sequence[Ending]) -> Sequence[Status | Exception | None]:
        """See `Writer`."""
        await self._hot.restore()
        return [await _look_for(self._hot.fetch, ending) for ending in items]

    async def write_aside(self, item: Ending) -> Status:
        """See `Writer`."""

        async def work(tx: Tx) -> Status | Exception:
            found = await _look_for(tx.rows, item) if tx.again else None
            return found or (await self._write(tx.rows, [item], tx.tenant))[0]

        async with self._aside:
            result = await self._db.transact(work)
        self._ring()
        if isinstance(result, Exception):
            raise result
        return result

    def subject(self, item: Ending) -> Hashable:
        """See `Writer`."""
        return item.lease.job_id.int

    def size(self, item: Ending) -> int:
        """See `Writer`."""
        return text_of_outcome(item.outcome)

    def _ring(self) -> None:
        self._bell.ring("work", "news")  # a retry may be due at once, a parked job may have been answered already


class CompletionWriter(EndingWriter):
    """Endings that completed."""

    _write = staticmethod(complete)

    def _ring(self) -> None:
        self._bell.ring("news")


async def _look_for(run: Run, ending: Ending) -> Status | Exception | None:
    """What a lost write of this ending turned out to be; None = the attempt has not ended."""
    lease = ending.lease
    rows: list[Row] = await run("was_settled", lease.job_id, lease.attempt)
    if not rows:
        return None
    status = Status(rows[0]["status"])
    # A cancellation bears the canceller's note, whoever committed it; what is asked to end otherwise may have become one.
    cancelled = status is Status.CANCELLED and ending.outcome.status not in ENDS
    if cancelled or json.loads(rows[0]["payload"]).get("worker") == lease.worker_id:
        return status
    return lease_lost(lease)


class Finishing(Base):
    """See `protocol.LeaseStore`."""

    _completions: Batcher[Ending, Status]
    _endings: Batcher[Ending, Status]

    async def finish(self, lease: Lease, outcome: Outcome) -> Status:
        """See `protocol.LeaseStore.finish`."""
        if outcome.status is Status.COMPLETED:
            return await self._completions.submit(Ending(lease, outcome))
        if outcome.status.leased:
            raise IllegalTransition(
                f"an attempt of job …{short_id(lease.job_id)} cannot end {outcome.status}: that keeps its lease"
            )
        return await self._endings.submit(Ending(lease, outcome))
