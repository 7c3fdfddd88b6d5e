"""`client.limits`, blocking."""

from __future__ import annotations

import builtins

from perdure.model.budgets import Budget
from perdure.model.limits import Limit
from perdure.model.shared_budgets import SharedBudget
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.client.limits import Limits as AsyncLimits


class Limits:
    """See `perdure.Client.limits`."""

    def __init__(self, limits: AsyncLimits, background: BackgroundLoop) -> None:
        self._limits = limits
        self._background = background

    def list(self) -> builtins.list[Limit]:
        """See `Limits.list`."""
        return self._background.run(self._limits.list())

    def get(self, key: str) -> Limit:
        """See `Limits.get`."""
        return self._background.run(self._limits.get(key))

    def set(self, key: str, max: int | None = None, *, per_minute: int | None = None) -> Limit:
        """See `Limits.set`."""
        return self._background.run(self._limits.set(key, max, per_minute=per_minute))

    def unset(self, key: str) -> Limit:
        """See `Limits.unset`."""
        return self._background.run(self._limits.unset(key))

    def budgets(self) -> builtins.list[SharedBudget]:
        """See `Limits.budgets`."""
        return self._background.run(self._limits.budgets())

    def budget(self, *, agent: str | None = None) -> SharedBudget | None:
        """See `Limits.budget`."""
        return self._background.run(self._limits.budget(agent=agent))

    def set_budget(self, budget: Budget, *, agent: str | None = None) -> SharedBudget:
        """See `Limits.set_budget`."""
        return self._background.run(self._limits.set_budget(budget, agent=agent))

    def unset_budget(self, *, agent: str | None = None) -> bool:
        """See `Limits.unset_budget`."""
        return self._background.run(self._limits.unset_budget(agent=agent))
