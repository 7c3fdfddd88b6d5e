"""`client.limits`: how many jobs of a concurrency key may run at a time, and the budgets of agents and of the tenant."""

from __future__ import annotations

import builtins

from perdure.model.budgets import Budget
from perdure.model.errors import InvalidInput
from perdure.model.limits import Limit
from perdure.model.shared_budgets import SharedBudget, check_shared, scope_of
from perdure.runtime.client.base import ClientPart
from perdure.runtime.message_checks import check_agent_id
from perdure.runtime.validation import check_budget, check_key, check_maximum


class Limits(ClientPart):
    """How many jobs of a concurrency key may run at a time, and how many do; what the jobs of an agent or tenant may use."""

    async def list(self) -> builtins.list[Limit]:
        """The keys that jobs hold slots of, and those that were set by hand; at most 1,000."""
        return await (await self._store()).limits.list_limits()

    async def get(self, key: str) -> Limit:
        """One key, with the jobs that hold its slots. Raises InvalidInput."""
        return await (await self._store()).limits.get_limit(check_key(key, "key"))

    async def set(self, key: str, max: int | None = None, *, per_minute: int | None = None) -> Limit:
        """Let at most `max` jobs of this key run from now on, whatever code says; 0: none. per_minute: so many may start in any
        minute. What is not given stays as it is.

        A lower maximum ends no job: it holds once so many have ended. Raises InvalidInput.
        """
        store, key = await self._store(), check_key(key, "key")
        if max is None and per_minute is None:
            raise InvalidInput("give max, per_minute or both", hint="limits.set('mail', per_minute=30)")
        most = None if max is None else check_maximum(max, "max", least=0)
        rate = None if per_minute is None else check_maximum(per_minute, "per_minute")
        if most is not None:
            await store.limits.set_limit(key, most, by=self._scope.actor)
        if rate is not None:
            await store.limits.set_rate(key, rate, by=self._scope.actor)
        return await store.limits.get_limit(key)

    async def unset(self, key: str) -> Limit:
        """Let code say again how many jobs of this key run, and start in a minute. It does nothing if nothing was set. Raises
        InvalidInput."""
        store = await self._store()
        key = check_key(key, "key")
        await store.limits.unset_limit(key)
        rate = (await store.limits.get_limit(key)).rate
        if rate is not None and rate.set_by_hand:
            await store.limits.set_rate(key, None, by=self._scope.actor)
        return await store.limits.get_limit(key)

    async def budgets(self) -> builtins.list[SharedBudget]:
        """The budgets of agents and of the tenant, with what is left of them."""
        return await (await self._store()).limits.list_budgets()

    async def budget(self, *, agent: str | None = None) -> SharedBudget | None:
        """That of an agent; agent None: of the tenant. None if it has none."""
        return next((found for found in await self.budgets() if found.agent == agent), None)

    async def set_budget(self, budget: Budget, *, agent: str | None = None) -> SharedBudget:
        """What all jobs of an agent may use together from now on; agent None: all jobs of the tenant. What was spent stays.

        Workers know it within some seconds, and attempts that begin after that keep to it. Raises InvalidBudget, InvalidInput.
        """
        scope = scope_of(None if agent is None else check_agent_id(agent))
        checked = check_budget(budget) or Budget()
        await (await self._store()).limits.set_budget(scope, check_shared(checked), by=self._scope.actor)
        found = await self.budget(agent=agent)
        assert found is not None
        return found

    async def unset_budget(self, *, agent: str | None = None) -> bool:
        """Remove the budget of an agent or, agent None, of the tenant, with what was spent of it; False if there was none."""
        return await (await self._store()).limits.unset_budget(scope_of(agent))
