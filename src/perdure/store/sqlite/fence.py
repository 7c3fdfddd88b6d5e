"""The fence: every write of a worker looks first whether its lease is still the live one. Nobody can change that before the
commit, because the running transaction has the file for itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import TypeGuard

from perdure.model.jobs import Lease
from perdure.store.sqlite.base import SQL


def live_claims(conn: sqlite3.Connection, now: int, tenant: str, ids: Iterable[str]) -> dict[str, sqlite3.Row]:
    """The claims of these jobs that have not run out, by job id. Whose they are is `holds`' business."""
    rows = conn.execute(SQL["live_claims"], ('["' + '","'.join(ids) + '"]', now, tenant))
    return {row["job_id"]: row for row in rows}


def holds(claim: sqlite3.Row | None, lease: Lease) -> TypeGuard[sqlite3.Row]:
    """Whether this is the claim of that very lease."""
    return claim is not None and claim["attempt"] == lease.attempt and claim["worker_id"] == lease.worker_id


def held_claim(conn: sqlite3.Connection, now: int, tenant: str, lease: Lease) -> sqlite3.Row | None:
    """The claim of this very lease, if it has not run out."""
    id = str(lease.job_id)
    claim = live_claims(conn, now, tenant, (id,)).get(id)
    return claim if holds(claim, lease) else None
