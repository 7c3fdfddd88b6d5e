"""The limits of concurrency keys, and the budgets that jobs share. Part of `protocol.Store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perdure.model.budgets import Amounts, Budget
from perdure.model.jobs import Lease
from perdure.model.limits import Limit
from perdure.model.shared_budgets import Reserved, SharedBudget


class LimitStore(Protocol):
    """How many jobs of a concurrency key may run at a time, as operators set it, and how many do."""

    async def list_limits(self, *, limit: int = 1000) -> list[Limit]:
        """The keys that have live leases or were set by hand, in their order, without holders."""
        ...

    async def get_limit(self, key: str) -> Limit:
        """One key with the jobs that hold its slots; zeros for a key that no job has."""
        ...

    async def set_limit(self, key: str, max: int, *, by: str) -> None:
        """From now on at most `max` jobs of this key run; this wins over code. 0: none. A lower one ends no job: it holds when so
        many have ended."""
        ...

    async def unset_limit(self, key: str) -> bool:
        """Let code say again how many jobs of this key run; False if nothing was set."""
        ...

    async def set_rate(self, key: str, per_minute: int | None, *, by: str) -> None:
        """From now on at most so many jobs of this key start in any minute; this wins over code. None: as code says."""
        ...

    async def say_rate(self, key: str, per_minute: int) -> None:
        """What code says of the rate of a key: what was said last counts. Nothing is written where it is the same."""
        ...

    async def set_budget(self, scope: str, budget: Budget, *, by: str) -> None:
        """The budget of a tenant or an agent is this from now on; what was spent stays."""
        ...

    async def unset_budget(self, scope: str) -> bool:
        """Remove it, with what was spent and set aside; False if there was none."""
        ...

    async def list_budgets(self) -> list[SharedBudget]:
        """All of the tenant, by scope."""
        ...

    async def reserve_budget(self, lease: Lease, key: str, scopes: Sequence[str], need: Amounts) -> Reserved:
        """Set aside under `key`, in all of these budgets or none, what a call of this attempt may use, and count the call. Scopes
        without a budget are ignored. Called again with the same key it changes nothing; what an earlier attempt has left under
        the key counts as spent first. Where nothing is needed nothing is written. The effects `use_hold`, `release_hold` and
        `spend_budget` settle it. Raises `LeaseLost`."""
        ...

    async def fold_budgets(self) -> int:
        """Count as spent what calls of attempts that have ended have left set aside; return how many there were."""
        ...
