"""Taking finished jobs out of the database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from perdure.model.retention import Prunable, PruneFilter, PrunePage
from perdure.store.protocol.retention import LOOKED_AT
from perdure.store.sqlite.engine.base import SQL, Base
from perdure.store.sqlite.engine.database import span
from perdure.store.sqlite.engine.writer import NOTHING
from perdure.store.sqlite.jobs.read import texts

_PARTS = ("events", "runs", "state", "approvals", "failures", "jobs", "done")


class Retention(Base):
    """See `retention.RetentionStore`."""

    async def list_prunable(
        self, wanted: PruneFilter, *, after: UUID | None = None, before: UUID | None = None, limit: int = 500
    ) -> PrunePage:
        """See `retention.RetentionStore.list_prunable`."""
        where: dict[str, Any] = {
            "tenant": self.tenant_id,
            "after": None if after is None else str(after),
            "before": None if before is None else str(before),
            "rows": LOOKED_AT,
            "statuses": json.dumps([status for status in wanted.statuses if status.terminal]),
            "kinds": texts(wanted.kinds),
            "queues": texts(wanted.queues),
            "heavy": wanted.heavy,
            "limit": limit,
        }

        def look(conn: sqlite3.Connection) -> PrunePage:
            end = conn.execute(SQL["prune_window"], where).fetchone()
            up_to = None if end is None else end["id"]
            finished_before = conn.execute(SQL["db_now"]).fetchone()["now"] - span(wanted.older_than)
            more = {"up_to": up_to, "finished_before": finished_before}
            jobs = tuple(
                Prunable(UUID(row["id"]), row["version"]) for row in conn.execute(SQL["list_prunable"], where | more)
            )
            if len(jobs) == limit:
                return PrunePage(jobs, jobs[-1].id)
            return PrunePage(jobs, None if up_to is None else UUID(up_to))

        return await self._read(look)

    async def prune(self, job_ids: Sequence[UUID], *, keep_logs: bool = False) -> int:
        """See `retention.RetentionStore.prune`."""
        ids = json.dumps([str(id) for id in job_ids])

        def delete(conn: sqlite3.Connection, _: int) -> int:
            conn.execute(SQL["prune_done"])  # somebody may have written there by hand
            picked = conn.execute(SQL["prune_pick"], (ids, self.tenant_id)).rowcount
            for part in _PARTS if picked else ():
                conn.execute(SQL[f"prune_{part}"])
            return picked

        def lighten(conn: sqlite3.Connection, now: int) -> int:
            picked = conn.execute(SQL["lighten_jobs"], (now, ids, self.tenant_id)).rowcount
            if picked:
                conn.execute(SQL["lighten_state"], (ids, self.tenant_id))
            return picked

        return await self._write(lighten if keep_logs else delete, NOTHING)

    async def forget_workers(self, older_than: float) -> int:
        """See `retention.RetentionStore.forget_workers`."""

        def one(conn: sqlite3.Connection, now: int) -> int:
            return conn.execute(SQL["forget_workers"], (self.tenant_id, now - span(older_than))).rowcount

        return await self._write(one, NOTHING)

    async def lead(self, chore: str, *, holder: str, ttl: float) -> bool:
        """See `retention.RetentionStore.lead`."""

        def one(conn: sqlite3.Connection, now: int) -> bool:
            where = {
                "tenant": self.tenant_id,
                "chore": chore,
                "holder": holder,
                "now": now,
                "until": now + span(ttl),
            }
            return conn.execute(SQL["lead"], where).rowcount == 1

        return await self._write(one, NOTHING)
