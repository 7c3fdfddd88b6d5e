"""The end of an attempt. Many callers share each statement."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.model.effects import Effect
from perdure.model.errors import LeaseLost
from perdure.model.jobs import Lease, Outcome
from perdure.model.settlement import Settlement, settle_outcome
from perdure.model.states import Status
from perdure.store.errors import lease_lost
from perdure.store.sqlite.engine.codec import CODEC, json_array, span
from perdure.store.sqlite.engine.statements import SQL, update_rows, write_rows
from perdure.store.sqlite.leases.effects import EffectBatch
from perdure.store.sqlite.leases.lease_check import Claim, Holder, held_heads, holder_of, holds, live_claims


class FinishItem(NamedTuple):
    """One call of `finish`."""

    id: str
    holder: Holder
    lease: Lease
    outcome: Outcome
    ran: int
    """Microseconds."""
    effects: Sequence[Effect]
    woken: list[bool]
    """Gets True if the end changed more than its own job, as where it woke a parent."""


def finish_item(
    tenant_id: str, lease: Lease, outcome: Outcome, effects: Sequence[Effect], woken: list[bool]
) -> FinishItem:
    """What the writer needs of a call."""
    return FinishItem(str(lease.job_id), holder_of(tenant_id, lease), lease, outcome, span(outcome.ran), effects, woken)


def complete_each(conn: sqlite3.Connection, now: int, items: Sequence[FinishItem]) -> Sequence[Status | LeaseLost]:
    """End the attempts that returned: all claims are dropped first, then the jobs move."""
    results: list[Status | LeaseLost] = []
    completed: dict[str, list[tuple[Any, ...]]] = {}
    """By worker: rows of `complete_many`."""
    ids: set[str] = set()
    effects = EffectBatch(conn, now)
    heads = held_heads(conn, now, [item.id for item in items], [item.holder for item in items])
    for item, head in zip(items, heads, strict=True):
        id = item.id
        if head is None or id in ids:
            results.append(lease_lost(item.lease))
            continue
        ids.add(id)
        effects.add(id, item.holder.tenant_id, item.effects)
        ran = item.ran if item.outcome.started else None
        completed.setdefault(item.holder.worker_id, []).append((id, head + 1, item.outcome.result, ran))
        results.append(Status.COMPLETED)
    effects.write()
    if ids:
        conn.execute(SQL["drop_claims"], {"ids": json_array(ids)})
    before = conn.total_changes
    for worker_id, rows in completed.items():
        update_rows(conn, "complete_many", rows, now=now, note=json.dumps({"worker": worker_id}))
    if conn.total_changes - before > 2 * len(ids):  # more than each job and its event: it costs no statement to know
        items[0].woken.append(True)
    return results


def settle_each(conn: sqlite3.Connection, now: int, items: Sequence[FinishItem]) -> Sequence[Status | LeaseLost]:
    """End the attempts that ended in any other way."""
    results: list[Status | LeaseLost] = []
    settled: list[dict[str, Any]] = []
    runs: list[tuple[Any, ...]] = []
    claims = live_claims(conn, now, [item.id for item in items])
    effects = EffectBatch(conn, now)
    for id, holder, lease, outcome, ran, its_effects, _ in items:
        claim = claims.get(id)
        if not holds(claim, holder):
            results.append(lease_lost(lease))
            continue
        del claims[id]
        effects.add(id, holder.tenant_id, its_effects)
        job = conn.execute(SQL["retries"], {"job_id": id}).fetchone()
        end = settle_outcome(outcome, **job, cancel_requested=claim.cancel_note is not None)
        settled.append(settle_values(claim, end, now, _note(claim, outcome, end, now), span(outcome.delay)))
        if outcome.started:
            runs.append((id, lease.attempt, lease.worker_id, now - ran, end.status.value, end.error, end.error_kind))
        results.append(end.status)
    effects.write()  # before the ends: a suspended job waits for what they open
    if settled:
        conn.execute(SQL["drop_claims"], {"ids": json_array(values["job_id"] for values in settled)})
        conn.executemany(SQL["settle_many"], settled)
    write_rows(conn, "add_run", runs, now=now)
    return results


def finish_each(conn: sqlite3.Connection, now: int, items: Sequence[FinishItem]) -> list[Status | LeaseLost]:
    """End attempts that ended in any way."""
    results: dict[int, Status | LeaseLost] = {}
    completed = [n for n, item in enumerate(items) if item.outcome.status is Status.COMPLETED]
    others = [n for n, item in enumerate(items) if item.outcome.status is not Status.COMPLETED]
    for write, part in ((complete_each, completed), (settle_each, others)):
        if part:
            results.update(zip(part, write(conn, now, [items[n] for n in part]), strict=True))
    return [results[n] for n in range(len(items))]


def settle_values(claim: Claim, end: Settlement, now: int, note: str, delay: int = 0) -> dict[str, Any]:
    """The parameters of `settle_many`."""
    error, error_kind = end.job_error
    return {
        "job_id": claim.job_id,
        "now": now,
        "status": end.status,
        "version": claim.version + 1,
        "retry_count": end.retry_count,
        "lost_starts": end.lost_starts,
        "suspicion": end.suspicion,
        "next_retry_at": now + delay if end.status is Status.RETRY else None,
        "finished_at": now if end.status.terminal else None,
        "error": error,
        "error_kind": error_kind,
        "note": note,
    }


def _note(claim: Claim, outcome: Outcome, end: Settlement, now: int) -> str:
    if end.status is Status.CANCELLED and claim.cancel_note is not None:
        return claim.cancel_note
    said: dict[str, Any] = {
        "worker": claim.worker_id,
        "reason": outcome.reason,
        "error": end.error,
        "error_kind": end.error_kind,
        "traceback": outcome.traceback,
    }
    if end.status is Status.RETRY:
        due = CODEC.time(now + span(outcome.delay))
        said |= {"retry_count": end.retry_count, "next_retry_at": due.isoformat()}
    return json.dumps({key: value for key, value in said.items() if value is not None}, ensure_ascii=False)
