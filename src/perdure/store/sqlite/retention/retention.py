"""Deleting the finished jobs of one tenant, or their payloads."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from perdure.model.events import Event
from perdure.model.ids import first_id_of
from perdure.model.retention import Prunable, PruneFilter, PrunePage
from perdure.store.protocol.retention import MOST_EXAMINED, MOST_FORGOTTEN
from perdure.store.rows import event_of
from perdure.store.sqlite.engine.batch import NOTHING
from perdure.store.sqlite.engine.codec import CODEC, json_list, span
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL

_PARTS = (
    "memory",
    "tags",
    "unique_keys",
    "jobs",
    "events",
    "runs",
    "state",
    "approvals",
    "signals",
    "messages",
    "failures",
    "files",
    "tool_runs",
    "tool_output",
    "done",
)


class SqliteRetention:
    """See `protocol.RetentionStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def list_prunable(
        self, wanted: PruneFilter, *, after: UUID | None = None, before: UUID | None = None, limit: int = 500
    ) -> PrunePage:
        """See `protocol.RetentionStore.list_prunable`."""
        window = {
            "after": None if after is None else str(after),
            "before": None if before is None else str(before),
        }
        values: dict[str, Any] = {
            **window,
            "tenant_id": self._tenant_id,
            "statuses": json.dumps([status for status in wanted.statuses if status.terminal]),
            "kinds": json_list(wanted.kinds),
            "queues": json_list(wanted.queues),
            "heavy": wanted.heavy,
            "limit": limit,
        }

        def look(conn: sqlite3.Connection) -> PrunePage:
            end = conn.execute(SQL["prune_window"], {**window, "rows": MOST_EXAMINED}).fetchone()
            values["up_to"] = None if end is None else end["id"]
            values["finished_before"] = conn.execute(SQL["db_now"]).fetchone()["now"] - span(wanted.older_than)
            rows = conn.execute(SQL["list_prunable"], values)
            jobs = tuple(Prunable(UUID(row["id"]), row["version"]) for row in rows)
            if len(jobs) == limit:
                return PrunePage(jobs, jobs[-1].id)
            return PrunePage(jobs, None if end is None else UUID(end["id"]))

        return await self._engine.read(look)

    async def prune(self, job_ids: Sequence[UUID], *, keep_logs: bool = False, keep_memory: bool = True) -> int:
        """See `protocol.RetentionStore.prune`."""
        values = {"ids": json.dumps([str(id) for id in job_ids]), "tenant_id": self._tenant_id}

        def delete(conn: sqlite3.Connection, _: int) -> int:
            conn.execute(SQL["prune_done"])  # SQL typed by hand may have left something there
            picked = conn.execute(SQL["prune_pick"], values).rowcount
            for part in (_PARTS if keep_memory else _PARTS[1:]) if picked else ():
                conn.execute(SQL[f"prune_{part}"])
            return picked

        def lighten(conn: sqlite3.Connection, now: int) -> int:
            picked = conn.execute(SQL["lighten_jobs"], {**values, "now": now}).rowcount
            if picked:
                for part in ("state", "files", "tool_output"):
                    conn.execute(SQL[f"lighten_{part}"], values)
            return picked

        return await self._engine.write(lighten if keep_logs else delete, NOTHING)

    async def list_pruned_memory(
        self, job_id: UUID, *, types: Sequence[str], after: int = 0, limit: int = 1000
    ) -> list[Event]:
        """See `protocol.RetentionStore.list_pruned_memory`."""
        rows = await self._engine.rows(
            "list_pruned_memory",
            job_id=str(job_id),
            tenant_id=self._tenant_id,
            types=json.dumps(list(types)),
            after=after,
            limit=limit,
        )
        return [event_of(row, CODEC) for row in rows]

    async def forget_messages(
        self, what: Literal["message", "signal"], older_than: float, *, after: UUID | None = None
    ) -> tuple[int, UUID | None]:
        """See `protocol.RetentionStore.forget_messages`."""

        def forget(conn: sqlite3.Connection, now: int) -> tuple[int, UUID | None]:
            cutoff = now - span(older_than)
            window = {
                "after": None if after is None else str(after),
                "before": str(first_id_of(CODEC.time(cutoff))),
                "rows": MOST_FORGOTTEN,
            }
            ids = [row["id"] for row in conn.execute(SQL[f"{what}_window"], window)]
            values = {"ids": json.dumps(ids), "tenant_id": self._tenant_id, "cutoff": cutoff}
            deleted = conn.execute(SQL[f"forget_{what}s"], values).rowcount if ids else 0
            return deleted, UUID(ids[-1]) if len(ids) == MOST_FORGOTTEN else None

        return await self._engine.write(forget, NOTHING)

    async def forget_workers(self, older_than: float) -> int:
        """See `protocol.RetentionStore.forget_workers`."""

        def forget(conn: sqlite3.Connection, now: int) -> int:
            values = {"tenant_id": self._tenant_id, "before": now - span(older_than)}
            return conn.execute(SQL["forget_workers"], values).rowcount

        return await self._engine.write(forget, NOTHING)

    async def lead(self, chore: str, *, holder: str, ttl: float) -> bool:
        """See `protocol.RetentionStore.lead`."""

        def take(conn: sqlite3.Connection, now: int) -> bool:
            values = {"chore": chore, "holder": holder, "now": now, "until": now + span(ttl)}
            return conn.execute(SQL["lead"], {**values, "tenant_id": self._tenant_id}).rowcount == 1

        return await self._engine.write(take, NOTHING)
