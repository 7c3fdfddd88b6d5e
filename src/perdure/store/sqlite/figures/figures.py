"""What dashboards ask for."""

from __future__ import annotations

from datetime import datetime

from perdure.model.figures import Decided, Figures
from perdure.store.rows import decided_of, figures_of
from perdure.store.sqlite.engine.base import Base
from perdure.store.sqlite.engine.database import CODEC, micros


class Counting(Base):
    """See `protocol.FigureStore`."""

    async def snapshot(self) -> Figures:
        """See `protocol.FigureStore.snapshot`."""
        jobs = await self._rows("live_jobs", {"tenant": self.tenant_id})
        [approvals] = await self._rows("pending_approvals", {"tenant": self.tenant_id})
        return figures_of(jobs, approvals, CODEC)

    async def decided(self, since: datetime, *, limit: int = 1000) -> list[Decided]:
        """See `protocol.FigureStore.decided`."""
        parameters = {"tenant": self.tenant_id, "since": micros(since), "limit": limit}
        return [decided_of(row, CODEC) for row in await self._rows("decided_approvals", parameters)]
