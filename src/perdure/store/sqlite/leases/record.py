"""What an attempt writes while it runs: its events, its state, its waits. Many callers share each statement."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.model.errors import LeaseLost
from perdure.model.events import NewEvent
from perdure.model.jobs import Lease, StatePatch, Wait
from perdure.store.errors import lease_lost
from perdure.store.sqlite.engine.codec import micros
from perdure.store.sqlite.engine.statements import SQL, write_rows
from perdure.store.sqlite.leases.effects import Effect, EffectBatch
from perdure.store.sqlite.leases.lease_check import Holder, held_heads, holder_of

# What can be is prepared by the caller, in the event loop: the writer's time is what bounds a process.


class RecordItem(NamedTuple):
    """One call of `record`."""

    id: str
    holder: Holder
    lease: Lease
    events: Sequence[tuple[str, str, str]]
    """Event id, type, payload."""
    effects: Sequence[Effect]


def record_item(
    tenant_id: str,
    lease: Lease,
    events: Sequence[NewEvent],
    state: StatePatch | None,
    open_waits: Sequence[Wait],
    close_waits: Sequence[str],
) -> RecordItem:
    """What the writer needs of a call."""
    rows = [(event.event_id, event.type, event.payload) for event in events]
    effects: list[Effect] = [] if state is None else [state_effect(state)]
    effects += [open_effect(wait) for wait in open_waits]
    effects += [("close_waits", {"key": key}) for key in close_waits]
    return RecordItem(str(lease.job_id), holder_of(tenant_id, lease), lease, rows, effects)


def record_each(conn: sqlite3.Connection, now: int, items: Sequence[RecordItem]) -> Sequence[int | LeaseLost]:
    """Write what these calls bring, statement by statement; a call whose lease is gone writes nothing."""
    results: list[int | LeaseLost] = []
    events: list[tuple[Any, ...]] = []
    heads: dict[str, int] = {}  # where this batch leaves the log of a job
    effects = EffectBatch(conn, now)
    found = held_heads(conn, now, [item.id for item in items], [item.holder for item in items])
    for item, head in zip(items, found, strict=True):
        if head is None:
            results.append(lease_lost(item.lease))
            continue
        id, attempt = item.id, item.holder.attempt
        version = heads.get(id, head)
        for event in item.events:
            version += 1
            events.append((id, version, attempt, *event))
        heads[id] = version
        results.append(version)
        if item.effects:
            effects.add(id, item.effects)
    write_rows(conn, "append_many", events, now=now)
    if heads:
        conn.execute(SQL["advance_heads"], {"heads": json.dumps(heads), "now": now})
    effects.write()
    return results


def state_effect(patch: StatePatch) -> Effect:
    """A change of the job's state."""
    return "patch_state", {
        "checkpoint": patch.checkpoint,
        "progress": patch.progress,
        "progress_text": patch.progress_text,
        "tokens": patch.tokens,
        "cost": patch.cost,
    }


def open_effect(wait: Wait) -> Effect:
    """A wait begins."""
    until = micros(wait.until)
    return "open_wait", {"key": wait.key, "kind": wait.kind, "subject_id": wait.subject_id, "until": until}
