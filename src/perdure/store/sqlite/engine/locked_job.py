"""A job as the running transaction finds it: no other connection can change it before the commit."""

from __future__ import annotations

import sqlite3
from typing import cast
from uuid import UUID

from perdure.model.ids import new_event_id
from perdure.model.states import Status
from perdure.store.errors import job_not_found
from perdure.store.rows import Row
from perdure.store.sqlite.engine.statements import SQL, write_rows


class LockedJob:
    """The status, the head of the log, and the claim of a job."""

    __slots__ = ("attempt", "claim", "head", "id", "status")

    def __init__(self, conn: sqlite3.Connection, job_id: UUID | str, tenant_id: str) -> None:
        """Raises JobNotFound."""
        self.id = str(job_id)
        job = conn.execute(SQL["lock_job"], {"job_id": self.id, "tenant_id": tenant_id}).fetchone()
        if job is None:
            raise job_not_found(job_id)
        self.status = Status(job["status"])
        self.attempt: int = job["attempt"]
        self.claim = cast("Row | None", conn.execute(SQL["lock_claim"], {"job_id": self.id}).fetchone())
        self.head: int = job["version"] if self.claim is None else self.claim["version"]

    def leased(self, now: int) -> bool:
        """True where a worker holds it and its lease has not expired."""
        return self.claim is not None and self.claim["expires_at"] > now

    def write_event(self, conn: sqlite3.Connection, now: int, type: str, payload: str, id: str | None = None) -> int:
        """Append an event at the head of the log, leased or not; return its version."""
        self.head += 1
        write_rows(
            conn,
            "append_many",
            [(self.id, self.head, self.attempt, id or new_event_id(), type, payload)],
            now=now,
        )
        values = {"job_id": self.id, "version": self.head, "now": now}
        conn.execute(SQL["append_free" if self.claim is None else "append_leased"], values)
        return self.head
