"""Deleting finished jobs of one tenant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal
from uuid import UUID

from perdure.model.events import Event
from perdure.model.ids import first_id_of
from perdure.model.retention import Prunable, PruneFilter, PrunePage
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.engine import Engine
from perdure.store.protocol.retention import MOST_EXAMINED, MOST_FORGOTTEN
from perdure.store.rows import event_of

_PARTS = (
    "memory",
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
    "tags",
    "unique_keys",
    "jobs",
    "done",
)


class PostgresRetention:
    """See `protocol.RetentionStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._tenant_id = tenant_id

    async def list_prunable(
        self, wanted: PruneFilter, *, after: UUID | None = None, before: UUID | None = None, limit: int = 500
    ) -> PrunePage:
        """See `protocol.RetentionStore.list_prunable`."""
        end = await self._database.row("prune_window", after=after, before=before, rows=MOST_EXAMINED)
        up_to: UUID | None = end["id"] if end else None
        rows = await self._database.rows(
            "list_prunable",
            tenant_id=self._tenant_id,
            after=after,
            up_to=up_to,
            before=before,
            statuses=[status.value for status in wanted.statuses if status.terminal],
            older_than=float(wanted.older_than),
            kinds=list(wanted.kinds) or None,
            queues=list(wanted.queues) or None,
            heavy=wanted.heavy,
            limit=limit,
        )
        jobs = tuple(Prunable(row["id"], row["version"]) for row in rows)
        return PrunePage(jobs, jobs[-1].id if len(jobs) == limit else up_to)

    async def prune(self, job_ids: Sequence[UUID], *, keep_logs: bool = False, keep_memory: bool = True) -> int:
        """See `protocol.RetentionStore.prune`."""

        async def delete(tx: Transaction) -> int:
            rows = await tx.rows("prune_pick", tenant_id=self._tenant_id, ids=list(job_ids))
            picked = [row["job_id"] for row in rows]
            for part in (_PARTS if keep_memory else _PARTS[1:]) if picked else ():
                await tx.rows(f"prune_{part}", ids=picked)
            return len(picked)

        async def lighten(tx: Transaction) -> int:
            rows = await tx.rows("lighten_jobs", tenant_id=self._tenant_id, ids=list(job_ids))
            picked = [row["id"] for row in rows]
            if picked:
                for part in ("state", "files", "tool_output"):
                    await tx.rows(f"lighten_{part}", ids=picked)
            return len(picked)

        return await self._database.transact(lighten if keep_logs else delete)

    async def list_pruned_memory(
        self, job_id: UUID, *, types: Sequence[str], after: int = 0, limit: int = 1000
    ) -> list[Event]:
        """See `protocol.RetentionStore.list_pruned_memory`."""
        rows = await self._database.rows(
            "list_pruned_memory",
            job_id=job_id,
            tenant_id=self._tenant_id,
            types=list(types),
            after=after,
            limit=limit,
        )
        return [event_of(row, CODEC) for row in rows]

    async def forget_messages(
        self, what: Literal["message", "signal"], older_than: float, *, after: UUID | None = None
    ) -> tuple[int, UUID | None]:
        """See `protocol.RetentionStore.forget_messages`."""
        now = await self._database.row("db_now")
        assert now is not None
        before = first_id_of(now["now"] - timedelta(seconds=older_than))
        rows = await self._database.rows(f"{what}_window", after=after, before=before, rows=MOST_FORGOTTEN)
        ids: list[UUID] = [row["id"] for row in rows]
        deleted = 0
        if ids:
            values = {"ids": ids, "tenant_id": self._tenant_id, "older_than": float(older_than)}
            deleted = len(await self._database.rows(f"forget_{what}s", **values))
        return deleted, ids[-1] if len(ids) == MOST_FORGOTTEN else None

    async def forget_workers(self, older_than: float) -> int:
        """See `protocol.RetentionStore.forget_workers`."""
        return len(await self._database.rows("forget_workers", tenant_id=self._tenant_id, seconds=float(older_than)))

    async def lead(self, chore: str, *, holder: str, ttl: float) -> bool:
        """See `protocol.RetentionStore.lead`."""
        row = await self._database.row("lead", tenant_id=self._tenant_id, chore=chore, holder=holder, ttl=float(ttl))
        return row is not None
