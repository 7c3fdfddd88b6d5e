"""Seeing and setting the limits of concurrency keys, and the budgets of agents and of the tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.budgets import Budget
from perdure.model.errors import InvalidBudget, InvalidInput
from perdure.model.limits import Limit
from perdure.model.shared_budgets import SharedBudget
from perdure.operations.registry import Role, operation

if TYPE_CHECKING:
    from perdure import Client


@operation("limits.list", role=Role.VIEWER)
async def list_limits(client: Client) -> list[Limit]:
    """The concurrency keys that jobs hold slots of, and those that were set by hand."""
    return await client.limits.list()


@operation("limits.get", role=Role.VIEWER, errors=(InvalidInput,))
async def get_limit(client: Client, key: str) -> Limit:
    """One concurrency key, with the jobs that hold its slots."""
    return await client.limits.get(key)


@operation("limits.set", role=Role.OPERATOR, errors=(InvalidInput,))
async def set_limit(client: Client, key: str, max: int | None = None, *, per_minute: int | None = None) -> Limit:
    """Let at most `max` jobs of a concurrency key run, whatever code says; 0: none. It ends no job. per_minute: so many may start
    in any minute."""
    return await client.limits.set(key, max, per_minute=per_minute)


@operation("limits.unset", role=Role.OPERATOR, errors=(InvalidInput,))
async def unset_limit(client: Client, key: str) -> Limit:
    """Let code say again how many jobs of a concurrency key run."""
    return await client.limits.unset(key)


@operation("limits.budgets", role=Role.VIEWER)
async def list_budgets(client: Client) -> list[SharedBudget]:
    """The budgets of agents and of the tenant, with what is left of them."""
    return await client.limits.budgets()


@operation("limits.set_budget", role=Role.OPERATOR, errors=(InvalidBudget, InvalidInput))
async def set_budget(client: Client, budget: Budget, *, agent: str | None = None) -> SharedBudget:
    """What all jobs of an agent, or of the tenant, may use together; what was spent before stays."""
    return await client.limits.set_budget(budget, agent=agent)


@operation("limits.unset_budget", role=Role.OPERATOR)
async def unset_budget(client: Client, *, agent: str | None = None) -> bool:
    """Remove the budget of an agent or of the tenant, with what was spent of it; False if there was none."""
    return await client.limits.unset_budget(agent=agent)
