"""Which agents and tenants have a budget, as a worker knows it: it reads that from time to time, so that a job need not."""

from __future__ import annotations

import structlog

from perdure.model.errors import PerdureError
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.worker")


class BudgetScopes:
    """Those of one worker's tenant."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.scopes: frozenset[str] = frozenset()
        """As of the last read."""

    async def __call__(self) -> bool:
        """Read them, and count as spent what calls of attempts that have ended had set aside. A chore. Raises StoreError."""
        self.scopes = frozenset(budget.scope for budget in await self._store.limits.list_budgets())
        if self.scopes and (number := await self._store.limits.fold_budgets()):
            log.info("what calls had set aside that were cut off counts as spent", calls=number)
        return True

    async def read_first(self) -> None:
        """Before the first claim."""
        try:
            await self()
        except PerdureError as error:  # the chore repeats it
            log.warning("the budgets of agents and tenants could not be read", error=str(error))
