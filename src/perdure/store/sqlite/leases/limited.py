"""Jobs with a concurrency key: the second half of a claim takes them or holds them; a slot that became free releases them.

The twin of the functions of the PostgreSQL migration 0003, where each step is explained.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.leases.rates import count_starts, keys_to_wake, starts_left, wake_later

_ANY_NUMBER = 1000
"""Held jobs of a key without a maximum that are released at once."""
_HELD_AT_ONCE = 1000


class Fitting(NamedTuple):
    """Jobs that take slots of one key, None for those that have none. top: its maximum for these jobs."""

    ids: list[str]
    slot: str | None
    top: int | None


class Limits(NamedTuple):
    """What the handlers of a claim say about their kinds: a constant key, and a maximum."""

    keys: Mapping[str, str]
    tops: Mapping[str, int]


def take_or_hold(
    conn: sqlite3.Connection,
    now: int,
    *,
    tenant_id: str,
    lane: str,
    found: str,
    limits: Limits,
    room: int,
    alone: bool,
) -> list[Fitting]:
    """Of the jobs that a claim found (JSON array), those that take a slot, at most `room`; the others of a full key are held.

    Their queue rows are still there. alone: take none but those that were found.
    """
    _give_keys(conn, now, tenant_id, lane, found, limits, behind=not alone)
    fitting: list[Fitting] = []
    for key, kinds in conn.execute(SQL["keys_found"], {"ids": found}).fetchall():
        its_kinds = json.loads(kinds)
        live, by_hand = _in_use(conn, tenant_id, key)
        starts = starts_left(conn, now, tenant_id, key)
        most = max(room if starts is None else min(room, starts), 0)
        where = {"tenant_id": tenant_id, "key": key, "lane": lane, "now": now}
        front = [
            row
            for held in (0, 1)
            for row in _front(conn, where, its_kinds, limits, held, most, found if alone else None)
        ]
        waiting = []
        for place, (row, top) in enumerate(sorted(front)[:most], 1):
            allowed = top if by_hand is None else by_hand
            if allowed is None or live + place <= allowed:
                waiting.append((row[2], allowed))
        room -= len(waiting)
        live += len(waiting)
        # The slot is one of the key itself: what lets a job take that of one of several others chooses here.
        fitting += [
            Fitting([job_id for job_id, its in waiting if its == top], key, top) for top in {top for _, top in waiting}
        ]
        if starts is not None:
            count_starts(conn, now, tenant_id, key, len(waiting))
            starts -= len(waiting)
            if starts == 0:
                wake_later(conn, now, tenant_id, key)
        _hold(conn, where, its_kinds, limits, {job_id for job_id, _ in waiting}, live, by_hand, starts)
    return fitting


def _give_keys(
    conn: sqlite3.Connection, now: int, tenant_id: str, lane: str, found: str, limits: Limits, *, behind: bool
) -> None:
    if not limits.keys:
        return
    values = {"tenant_id": tenant_id, "keys": json.dumps(limits.keys), "tops": json.dumps(limits.tops)}
    if conn.execute(SQL["give_keys"], {**values, "ids": found}).rowcount and behind:
        for kind in limits.keys:
            [more] = conn.execute(SQL["keyless_behind"], {"lane": lane, "kind": kind, "now": now}).fetchone()
            conn.execute(SQL["give_keys"], {**values, "ids": more})


def _in_use(conn: sqlite3.Connection, tenant_id: str, key: str) -> tuple[int, int | None]:
    live, by_hand = conn.execute(SQL["slots_in_use"], {"tenant_id": tenant_id, "key": key}).fetchone()
    return live, by_hand


def _front(
    conn: sqlite3.Connection,
    where: Mapping[str, Any],
    kinds: Iterable[str],
    limits: Limits,
    held: int,
    limit: int,
    ids: str | None = None,
) -> list[tuple[tuple[int, int, str], int | None]]:
    """The first jobs of a key, each as what it is sorted by (its id comes last), with the maximum that code gives it."""
    rows = []
    for kind in kinds:
        values = {**where, "kind": kind, "held": held, "limit": limit, "ids": ids}
        for priority, run_at, job_id, top in conn.execute(SQL["keyed_front"], values):
            rows.append(((-priority, run_at, job_id), limits.tops.get(kind) if top is None else top))
    return rows


def _hold(
    conn: sqlite3.Connection,
    where: Mapping[str, Any],
    kinds: Iterable[str],
    limits: Limits,
    taken: set[str],
    live: int,
    by_hand: int | None,
    starts: int | None,
) -> None:
    """Hold what is left of a full key, or of one whose rate is used up: those that were not found as well, so that they are not
    found one by one."""
    rest = [row for row in _front(conn, where, kinds, limits, 0, _HELD_AT_ONCE + len(taken)) if row[0][2] not in taken]
    over: dict[int | None, list[str]] = {}
    for place, (row, top) in enumerate(sorted(rest), 1):
        allowed = top if by_hand is None else by_hand
        if (allowed is not None and live + place > allowed) or (starts is not None and place > starts):
            over.setdefault(top, []).append(row[2])
    for top, ids in over.items():
        conn.execute(SQL["hold"], {"ids": json.dumps(ids), "top": top})


def release_key(conn: sqlite3.Connection, now: int, tenant_id: str, key: str) -> int:
    """Let held jobs of a key go on, as many as there are free slots; return how many."""
    live, by_hand = _in_use(conn, tenant_id, key)
    starts = starts_left(conn, now, tenant_id, key)
    if starts == 0:
        wake_later(conn, now, tenant_id, key)
        return 0
    released = 0
    for lane, kind, its_top in conn.execute(SQL["held_places"], {"tenant_id": tenant_id, "key": key}).fetchall():
        top = its_top if by_hand is None else by_hand
        room = _ANY_NUMBER if top is None else top - live
        room = room if starts is None else min(room, starts)
        where = {"tenant_id": tenant_id, "key": key, "lane": lane, "kind": kind}
        if room > 0:
            room -= conn.execute(SQL["let_through"], {**where, "now": now, "limit": room}).fetchone()[0]
        if room > 0:
            released += conn.execute(SQL["release_some"], {**where, "limit": room}).rowcount
    return released


def release_held(conn: sqlite3.Connection, now: int, tenant_id: str, limit: int) -> int:
    """See `protocol.LeaseStore.release_held`."""
    rows = conn.execute(SQL["release_held"], {"tenant_id": tenant_id, "limit": limit}).fetchall()
    keys = {key for (key,) in rows} | keys_to_wake(conn, now, tenant_id)
    return sum(release_key(conn, now, tenant_id, key) for key in sorted(keys))


def recheck_held(conn: sqlite3.Connection, tenant_id: str) -> int:
    """See `protocol.LeaseStore.recheck_held`."""
    return conn.execute(SQL["recheck_held"], {"tenant_id": tenant_id}).rowcount
