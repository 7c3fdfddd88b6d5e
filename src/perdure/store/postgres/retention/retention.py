"""Taking finished jobs out of the database."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from perdure.model.retention import Prunable, PruneFilter, PrunePage
from perdure.store.postgres.engine.hot_writer import Base
from perdure.store.postgres.engine.transactions import Tx
from perdure.store.protocol.retention import LOOKED_AT

_PARTS = ("events", "runs", "state", "approvals", "failures", "jobs", "done")


class Retention(Base):
    """See `retention.RetentionStore`."""

    async def list_prunable(
        self, wanted: PruneFilter, *, after: UUID | None = None, before: UUID | None = None, limit: int = 500
    ) -> PrunePage:
        """See `retention.RetentionStore.list_prunable`."""
        end = await self._db.row("prune_window", after, before, LOOKED_AT)
        up_to: UUID | None = end["id"] if end else None
        rows = await self._db.rows(
            "list_prunable",
            self.tenant,
            after,
            up_to,
            before,
            [status.value for status in wanted.statuses if status.terminal],
            float(wanted.older_than),
            list(wanted.kinds) or None,
            list(wanted.queues) or None,
            wanted.heavy,
            limit,
        )
        jobs = tuple(Prunable(row["id"], row["version"]) for row in rows)
        return PrunePage(jobs, jobs[-1].id if len(jobs) == limit else up_to)

    async def prune(self, job_ids: Sequence[UUID], *, keep_logs: bool = False) -> int:
        """See `retention.RetentionStore.prune`."""

        async def delete(tx: Tx) -> int:
            picked = [row["job_id"] for row in await tx.rows("prune_pick", self.tenant, list(job_ids))]
            for part in _PARTS if picked else ():
                await tx.rows(f"prune_{part}", picked)
            return len(picked)

        async def lighten(tx: Tx) -> int:
            picked = [row["id"] for row in await tx.rows("lighten_jobs", self.tenant, list(job_ids))]
            if picked:
                await tx.rows("lighten_state", picked)
            return len(picked)

        return await self._db.transact(lighten if keep_logs else delete)

    async def forget_workers(self, older_than: float) -> int:
        """See `retention.RetentionStore.forget_workers`."""
        return len(await self._db.rows("forget_workers", self.tenant, float(older_than)))

    async def lead(self, chore: str, *, holder: str, ttl: float) -> bool:
        """See `retention.RetentionStore.lead`."""
        return await self._db.row("lead", self.tenant, chore, holder, float(ttl)) is not None
