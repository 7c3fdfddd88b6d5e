"""Deadlines of jobs and approvals that no worker holds."""

from __future__ import annotations

import sqlite3
from typing import Any

import structlog

from perdure.store.sqlite.approvals.decide import expire_approval
from perdure.store.sqlite.engine.connection import savepoint
from perdure.store.sqlite.engine.statements import SQL

log = structlog.get_logger("perdure.store")


def expire(conn: sqlite3.Connection, now: int, tenant_id: str, limit: int) -> int:
    """See `protocol.LeaseStore.expire`."""
    values = {"tenant_id": tenant_id, "now": now, "limit": limit}
    settled = _expire_jobs(conn, values)
    for row in conn.execute(SQL["due_approvals"], values).fetchall():
        try:
            with savepoint(conn):
                expire_approval(conn, now, row, tenant_id)
        except sqlite3.IntegrityError as error:
            log.error(  # noqa: TRY400  the error's text says it all
                "an approval of a damaged job cannot expire", approval_id=row["id"], error=str(error)
            )
        else:
            settled += 1
    return settled


def _expire_jobs(conn: sqlite3.Connection, values: dict[str, Any]) -> int:
    """Fail what is past its deadline; a damaged job does not keep the others from it."""
    try:
        with savepoint(conn):
            return conn.execute(SQL["expire_jobs"], values | {"job_id": None}).rowcount
    except sqlite3.IntegrityError:
        settled = 0
    for late in conn.execute(SQL["late_jobs"], values).fetchall():
        id: str = late["job_id"]
        try:
            with savepoint(conn):
                settled += conn.execute(SQL["expire_jobs"], values | {"job_id": id}).rowcount
        except sqlite3.IntegrityError as error:
            log.error("the deadline of a damaged job cannot be settled", job_id=id, error=str(error))  # noqa: TRY400  its text says it all
    return settled
