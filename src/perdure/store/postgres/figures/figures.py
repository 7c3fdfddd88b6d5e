"""What dashboards ask for."""

from __future__ import annotations

from datetime import datetime

from perdure.model.figures import Decided, Figures
from perdure.store.postgres.engine.codec import SPELLING
from perdure.store.postgres.engine.hot_writer import Base
from perdure.store.rows import decided_of, figures_of


class Counting(Base):
    """See `protocol.FigureStore`."""

    async def snapshot(self) -> Figures:
        """See `protocol.FigureStore.snapshot`."""
        jobs = await self._db.rows("live_jobs", self.tenant)
        [approvals] = await self._db.rows("pending_approvals", self.tenant)
        return figures_of(jobs, approvals, SPELLING)

    async def decided(self, since: datetime, *, limit: int = 1000) -> list[Decided]:
        """See `protocol.FigureStore.decided`."""
        return [
            decided_of(row, SPELLING) for row in await self._db.rows("decided_approvals", self.tenant, since, limit)
        ]
