"""Every write of a worker looks first whether its lease is still the live one. Nothing can change that before the commit, because
the running transaction has the file for itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeGuard

from perdure.model.jobs import Lease
from perdure.store.sqlite.engine.codec import json_array
from perdure.store.sqlite.engine.statements import fetch_json


class Claim(NamedTuple):
    """A row of `live_claims`."""

    job_id: str
    tenant_id: str
    worker_id: str
    attempt: int
    version: int
    cancel_note: str | None


class Holder(NamedTuple):
    """A worker of a tenant in one attempt of a job."""

    tenant_id: str
    worker_id: str
    attempt: int


def holder_of(tenant_id: str, lease: Lease) -> Holder:
    """Who has this lease."""
    return Holder(tenant_id, lease.worker_id, lease.attempt)


def held_heads(
    conn: sqlite3.Connection, now: int, ids: Sequence[str], holders: Sequence[Holder]
) -> Sequence[int | None]:
    """Where the log of each of these jobs ends; None unless its holder has a live lease of it."""
    if len(set(holders)) == 1:  # mostly: one worker, in first attempts
        values = {"ids": json_array(ids), "now": now, **holders[0]._asdict()}
        heads: dict[str, int] = fetch_json(conn, "held_heads", values)
        return [heads.get(id) for id in ids]
    claims = live_claims(conn, now, ids)
    return [
        claim.version if holds(claim := claims.get(id), holder) else None
        for id, holder in zip(ids, holders, strict=True)
    ]


def live_claims(conn: sqlite3.Connection, now: int, ids: Iterable[str]) -> dict[str, Claim]:
    """The claims of these jobs that have not expired, by job id. `holds` says of which lease they are."""
    rows = fetch_json(conn, "live_claims", {"ids": json_array(ids), "now": now})
    return {row[0]: Claim(*row) for row in rows}


def holds(claim: Claim | None, holder: Holder) -> TypeGuard[Claim]:
    """Whether this is the claim of that very lease."""
    return claim is not None and (claim.tenant_id, claim.worker_id, claim.attempt) == holder


def held_claim(conn: sqlite3.Connection, now: int, tenant_id: str, lease: Lease) -> Claim | None:
    """The claim of this very lease, if it has not expired."""
    id = str(lease.job_id)
    claim = live_claims(conn, now, (id,)).get(id)
    return claim if holds(claim, holder_of(tenant_id, lease)) else None
