"""The ends of attempts: one statement for those that completed, one for all others, each for all that arrived meanwhile."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from typing import NamedTuple
from uuid import UUID

from perdure.model.effects import LOCK_ORDER, Effect
from perdure.model.jobs import Lease, Outcome
from perdure.model.states import Status
from perdure.store.errors import lease_lost
from perdure.store.group_commit.limits import text_of_outcome
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.hot_connection import RunStatement
from perdure.store.postgres.engine.hot_writer import HotWriter, alike
from perdure.store.postgres.leases.effects import run_effects
from perdure.store.postgres.leases.record import advance_heads, in_lock_order
from perdure.store.protocol import Topic

HOT_STATEMENTS = ("complete_many", "settle_many", "was_settled", "advance_heads", *LOCK_ORDER)

FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.DEADLETTER})
"""Outcomes that a pending cancel request does not turn into CANCELLED."""


class Ending(NamedTuple):
    """One call of `finish`."""

    tenant_id: str
    lease: Lease
    outcome: Outcome
    effects: Sequence[Effect] = ()


async def complete(
    run: RunStatement, endings: Sequence[Ending], children: list[bool] | None = None
) -> list[Status | Exception]:
    """Attempts that completed. children: gets whether any of the jobs has a parent, which this may have woken."""
    tenant_ids, leases, outcomes, _ = zip(*sorted(endings, key=in_lock_order), strict=True)
    ids, attempts, workers = zip(*leases, strict=True)
    worker_ids = alike(workers)
    [row] = await run(
        "complete_many",
        ids=ids,
        tenant_ids=alike(tenant_ids),
        attempts=alike(attempts),
        worker_ids=worker_ids,
        results=alike([outcome.result for outcome in outcomes]),
        seconds=[outcome.ran if outcome.started else None for outcome in outcomes],
        note=json.dumps({"worker": worker_ids[0]}) if len(worker_ids) == 1 else None,
    )
    if children is not None:
        children.append(row["children"])
    if row["moved"] is None:
        return [Status.COMPLETED] * len(endings)
    done = set(row["moved"])
    return [Status.COMPLETED if e.lease.job_id in done else lease_lost(e.lease) for e in endings]


async def settle(run: RunStatement, endings: Sequence[Ending]) -> list[Status | Exception]:
    """Attempts that ended in any other way."""
    ordered = sorted(endings, key=in_lock_order)
    rows = await run(
        "settle_many",
        ids=[e.lease.job_id for e in ordered],
        tenant_ids=[e.tenant_id for e in ordered],
        attempts=[e.lease.attempt for e in ordered],
        worker_ids=[e.lease.worker_id for e in ordered],
        statuses=[e.outcome.status.value for e in ordered],
        errors=[e.outcome.error for e in ordered],
        error_kinds=[e.outcome.error_kind for e in ordered],
        delays=[e.outcome.delay for e in ordered],
        uses_retry=[e.outcome.uses_retry for e in ordered],
        reasons=[e.outcome.reason for e in ordered],
        started=[e.outcome.started for e in ordered],
        seconds=[e.outcome.ran for e in ordered],
        tracebacks=[e.outcome.traceback for e in ordered],
    )
    done = {row["id"]: Status(row["status"]) for row in rows}
    return [done.get(e.lease.job_id) or lease_lost(e.lease) for e in endings]


async def finish_with_effects(run: RunStatement, endings: Sequence[Ending]) -> list[Status | Exception]:
    """Attempts that end in any way, each with what commits together with its end; the statements of one transaction.

    The effects come first: a suspended job waits for what they open.
    """
    ordered = sorted(endings, key=in_lock_order)
    heads = await advance_heads(run, ordered, [0] * len(ordered))
    ordered = [ending for ending in ordered if ending.lease.job_id in heads]
    await run_effects(run, ((ending.lease.job_id, effect) for ending in ordered for effect in ending.effects))
    results: dict[UUID, Status | Exception] = {}
    completed = [ending for ending in ordered if ending.outcome.status is Status.COMPLETED]
    others = [ending for ending in ordered if ending.outcome.status is not Status.COMPLETED]
    for write, part in ((complete, completed), (settle, others)):
        if part:
            ids = [ending.lease.job_id for ending in part]
            results.update(zip(ids, await write(run, part), strict=True))
    return [results.get(ending.lease.job_id) or lease_lost(ending.lease) for ending in endings]


class EndingWriter(HotWriter[Ending, Status]):
    """Endings that did not complete."""

    _write = staticmethod(settle)
    _topics: tuple[Topic, ...] = (
        "work",
        "news",
    )  # a retry may be due at once, a parked job may have been answered already

    async def write(self, items: Sequence[Ending]) -> Sequence[Status | Exception]:
        """See `Writer`."""
        results = await self._write(self._hot.rows, items)
        self._notify(items)
        return results

    async def find_written(self, items: Sequence[Ending]) -> Sequence[Status | Exception | None]:
        """See `Writer`."""
        await self._hot.connect()
        return [await _find(self._hot.rows, ending) for ending in items]

    async def write_separately(self, item: Ending) -> Status:
        """See `Writer`."""

        async def work(tx: Transaction) -> Status | Exception:
            found = await _find(tx.rows, item) if tx.again else None
            return found or (await self._write(tx.rows, [item]))[0]

        async with self._separate:
            result = await self._database.transact(work)
        self._notify([item])
        if isinstance(result, Exception):
            raise result
        return result

    def subject(self, item: Ending) -> Hashable:
        """See `Writer`."""
        return item.lease.job_id.int

    def size(self, item: Ending) -> int:
        """See `Writer`."""
        return text_of_outcome(item.outcome)

    def _notify(self, items: Sequence[Ending], *more: Topic) -> None:
        for tenant_id in {item.tenant_id for item in items}:
            self._notifier.notify(tenant_id, *self._topics, *more)


class CompletionWriter(EndingWriter):
    """Endings that completed."""

    _write = staticmethod(complete)
    _topics = ("news",)

    async def write(self, items: Sequence[Ending]) -> Sequence[Status | Exception]:
        """See `Writer`."""
        children: list[bool] = []
        results = await complete(self._hot.rows, items, children)
        if any(children):
            self._notify(items, "work")
        else:
            self._notify(items)
        return results


class EndingWithEffectsWriter(EndingWriter):
    """Endings with effects: a transaction of set-based statements for all that arrived meanwhile."""

    _write = staticmethod(finish_with_effects)

    async def write(self, items: Sequence[Ending]) -> Sequence[Status | Exception]:
        """See `Writer`."""
        async with self._hot.transaction() as run:
            results = await self._write(run, items)
        self._notify(items)
        return results


async def _find(run: RunStatement, ending: Ending) -> Status | Exception | None:
    """How a lost write of this ending turned out; None = the attempt has not ended."""
    lease = ending.lease
    rows = await run("was_settled", job_id=lease.job_id, attempt=lease.attempt)
    if not rows:
        return None
    status = Status(rows[0]["status"])
    # A cancellation has the canceller's note, also where the reaper committed it. What is asked to end otherwise may have become
    # one.
    cancelled = status is Status.CANCELLED and ending.outcome.status not in FINAL
    if cancelled or json.loads(rows[0]["payload"]).get("worker") == lease.worker_id:
        return status
    return lease_lost(lease)
