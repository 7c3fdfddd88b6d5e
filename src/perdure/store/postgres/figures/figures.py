"""Counts for dashboards and alerts, of one tenant."""

from __future__ import annotations

from datetime import datetime

from perdure.model.figures import Decided, Figures
from perdure.model.retention import IndexSize, StoreSizes, TableSize, by_size
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.engine import Engine
from perdure.store.rows import decided_of, figures_of


class PostgresFigures:
    """See `protocol.FigureStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._tenant_id = tenant_id

    async def snapshot(self) -> Figures:
        """See `protocol.FigureStore.snapshot`."""
        jobs = await self._database.rows("live_jobs", tenant_id=self._tenant_id)
        [approvals] = await self._database.rows("pending_approvals", tenant_id=self._tenant_id)
        return figures_of(jobs, approvals, CODEC)

    async def decided(self, since: datetime, *, limit: int = 1000) -> list[Decided]:
        """See `protocol.FigureStore.decided`."""
        rows = await self._database.rows("decided_approvals", tenant_id=self._tenant_id, since=since, limit=limit)
        return [decided_of(row, CODEC) for row in rows]

    async def sizes(self) -> StoreSizes:
        """See `protocol.FigureStore.sizes`."""
        indexes: dict[str, list[IndexSize]] = {}
        for row in await self._database.rows("index_sizes"):
            indexes.setdefault(row["tbl_name"], []).append(IndexSize(row["name"], row["bytes"]))
        tables = [
            TableSize(
                row["name"],
                row["rows"],
                dead_rows=row["dead"],
                bytes=row["bytes"],
                indexes=tuple(sorted(indexes.get(row["name"], ()), key=lambda i: -i.bytes)),
            )
            for row in await self._database.rows("table_sizes")
        ]
        return StoreSizes(by_size(tables), sum((t.bytes or 0) + (t.index_bytes or 0) for t in tables))
