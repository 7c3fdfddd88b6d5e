"""What an attempt writes while it runs: its events and their effects. Many callers share each statement."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.model.effects import Effect
from perdure.model.errors import LeaseLost
from perdure.model.events import NewEvent
from perdure.model.jobs import Lease
from perdure.store.errors import lease_lost
from perdure.store.sqlite.engine.statements import SQL, write_rows
from perdure.store.sqlite.leases.effects import EffectBatch
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


def record_item(tenant_id: str, lease: Lease, events: Sequence[NewEvent], effects: Sequence[Effect]) -> RecordItem:
    """What the writer needs of a call."""
    rows = [(event.event_id, event.type, event.payload) for event in events]
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
            effects.add(id, item.holder.tenant_id, item.effects)
    write_rows(conn, "append_many", events, now=now)
    if heads:
        conn.execute(SQL["advance_heads"], {"heads": json.dumps(heads), "now": now})
    effects.write()
    return results
