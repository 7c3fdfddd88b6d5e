"""The fence: every write of a worker looks first whether its lease is still the live one. Nobody can change that before the
commit, because the running transaction has the file for itself."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple, TypeGuard

from perdure.model.jobs import Lease
from perdure.store.sqlite.engine.base import SQL
from perdure.store.sqlite.engine.bulk import fetch_rows, json_of


class Claim(NamedTuple):
    """A row of `live_claims`."""

    job_id: str
    attempt: int
    worker_id: str
    version: int
    cancel_note: str | None


class Holder(NamedTuple):
    """A worker in one attempt of a job."""

    worker_id: str
    attempt: int


def held_heads(conn: sqlite3.Connection, now: int, tenant: str, holder: Holder, ids: Iterable[str]) -> dict[str, int]:
    """Where the logs of these jobs end, by job id; only of those that this holder has a live lease of."""
    row = conn.execute(SQL["held_heads"], (json_of(ids), *holder, now, tenant)).fetchone()
    heads: dict[str, int] = json.loads(row[0])
    return heads


def live_claims(conn: sqlite3.Connection, now: int, tenant: str, ids: Iterable[str]) -> dict[str, Claim]:
    """The claims of these jobs that have not run out, by job id. Whose they are is `holds`' business."""
    rows = fetch_rows(conn, "live_claims", (json_of(ids), now, tenant))
    return {row[0]: Claim._make(row) for row in rows}


def holds(claim: Claim | None, lease: Lease) -> TypeGuard[Claim]:
    """Whether this is the claim of that very lease."""
    return claim is not None and claim.attempt == lease.attempt and claim.worker_id == lease.worker_id


def held_claim(conn: sqlite3.Connection, now: int, tenant: str, lease: Lease) -> Claim | None:
    """The claim of this very lease, if it has not run out."""
    id = str(lease.job_id)
    claim = live_claims(conn, now, tenant, (id,)).get(id)
    return claim if holds(claim, lease) else None
