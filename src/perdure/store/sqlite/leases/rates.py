"""Rates of concurrency keys: how many of their jobs may start now, and when the next one may."""

from __future__ import annotations

import sqlite3

from perdure.store.sqlite.engine.statements import SQL


def starts_left(conn: sqlite3.Connection, now: int, tenant_id: str, key: str) -> int | None:
    """How many jobs of a key may start now; None: it has no rate."""
    row = conn.execute(SQL["starts_left"], {"tenant_id": tenant_id, "key": key, "now": now}).fetchone()
    return None if row is None else row["number"]


def count_starts(conn: sqlite3.Connection, now: int, tenant_id: str, key: str, number: int) -> None:
    """So many jobs of a key with a rate start now."""
    place = {"tenant_id": tenant_id, "key": key, "now": now}
    if number:
        conn.execute(SQL["add_starts"], {**place, "number": number})
        conn.execute(SQL["drop_old_starts"], place)


def wake_later(conn: sqlite3.Connection, now: int, tenant_id: str, key: str) -> None:
    """The held jobs of a key, whose rate is used up, are looked at when the next one may start."""
    conn.execute(SQL["wake_at_next_start"], {"tenant_id": tenant_id, "key": key, "now": now})


def keys_to_wake(conn: sqlite3.Connection, now: int, tenant_id: str) -> set[str]:
    """The keys of which that time has come."""
    return {key for (key,) in conn.execute(SQL["wake_rates"], {"tenant_id": tenant_id, "now": now})}
