"""Figures for dashboards and alerts. Part of `protocol.Store`."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from perdure.model.figures import Decided, Figures
from perdure.model.retention import StoreSizes


class FigureStore(Protocol):
    """Figures for dashboards and alerts."""

    async def snapshot(self) -> Figures:
        """The jobs that are not finished, counted by kind, queue and status, and the approvals that are pending.

        The cost grows with the number of unfinished jobs; finished ones are not read. The two counts may be a moment apart.
        """
        ...

    async def decided(self, since: datetime, *, limit: int = 1000) -> list[Decided]:
        """Approvals that were approved, denied or expired at `since` (UTC) or later, earliest first, at most `limit`; without
        those that were closed because their job ended. The cost grows with what it returns."""
        ...

    async def sizes(self) -> StoreSizes:
        """How much space tables and indexes take, largest first, of all tenants. Nothing is found out by reading a large table:
        rows are estimates, or counted up to a bound."""
        ...
