"""The limits of concurrency keys of one tenant, and the budgets that its jobs share."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model.budgets import Amounts, Budget
from perdure.model.jobs import Lease
from perdure.model.limits import MOST_WAITING, SHOWN_HOLDERS, Limit, Rate
from perdure.model.shared_budgets import Reserved, SharedBudget, hold_of, shared_budget_of, values_of
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.engine import Engine
from perdure.store.postgres.limits.budgets import fold, reserve


class PostgresLimits:
    """See `protocol.LimitStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._notifier = engine.notifier
        self._tenant_id = tenant_id

    async def list_limits(self, *, limit: int = 1000) -> list[Limit]:
        """See `protocol.LimitStore.list_limits`."""
        rows = await self._database.rows("list_limits", tenant_id=self._tenant_id, limit=limit, most=MOST_WAITING)
        rates = await self._database.rows("list_rates", tenant_id=self._tenant_id, limit=limit)
        of = {row["key"]: Rate(row["per_minute"], row["started"], row["by_hand"]) for row in rates}
        found = [Limit(**row, rate=of.pop(row["key"], None)) for row in rows]
        found += [await self.get_limit(key) for key in [*of][: limit - len(found)]]
        return sorted(found, key=lambda one: one.key)

    async def get_limit(self, key: str) -> Limit:
        """See `protocol.LimitStore.get_limit`."""
        return await self._database.transact(
            lambda tx: read_limit(tx, self._tenant_id, key), isolation="repeatable_read", readonly=True
        )

    async def set_limit(self, key: str, max: int, *, by: str) -> None:
        """See `protocol.LimitStore.set_limit`."""
        await self._database.rows("set_limit", tenant_id=self._tenant_id, key=key, max=max, by=by)
        self._notifier.notify(self._tenant_id, "work")

    async def unset_limit(self, key: str) -> bool:
        """See `protocol.LimitStore.unset_limit`."""
        row = await self._database.row("unset_limit", tenant_id=self._tenant_id, key=key)
        self._notifier.notify(self._tenant_id, "work")
        return row is not None

    async def set_rate(self, key: str, per_minute: int | None, *, by: str) -> None:
        """See `protocol.LimitStore.set_rate`."""
        await self._database.rows("set_rate", tenant_id=self._tenant_id, key=key, per_minute=per_minute, by=by)
        self._notifier.notify(self._tenant_id, "work")

    async def say_rate(self, key: str, per_minute: int) -> None:
        """See `protocol.LimitStore.say_rate`."""
        await self._database.rows("say_rate", tenant_id=self._tenant_id, key=key, per_minute=per_minute)

    async def set_budget(self, scope: str, budget: Budget, *, by: str) -> None:
        """See `protocol.LimitStore.set_budget`."""
        await self._database.rows("set_budget", tenant_id=self._tenant_id, scope=scope, by=by, **values_of(budget))

    async def unset_budget(self, scope: str) -> bool:
        """See `protocol.LimitStore.unset_budget`."""

        async def unset(tx: Transaction) -> bool:
            row = await tx.row("unset_budget", tenant_id=self._tenant_id, scope=scope)
            await tx.rows("unset_holds", tenant_id=self._tenant_id, scope=scope)
            return row is not None

        return await self._database.transact(unset)

    async def list_budgets(self) -> list[SharedBudget]:
        """See `protocol.LimitStore.list_budgets`."""

        async def read(tx: Transaction) -> list[SharedBudget]:
            rows = await tx.rows("list_budgets", tenant_id=self._tenant_id)
            holds = [hold_of(row) for row in await tx.rows("list_holds", tenant_id=self._tenant_id)] if rows else []
            return [shared_budget_of(row, holds) for row in rows]

        return await self._database.transact(read, isolation="repeatable_read", readonly=True)

    async def reserve_budget(self, lease: Lease, key: str, scopes: Sequence[str], need: Amounts) -> Reserved:
        """See `protocol.LimitStore.reserve_budget`."""
        return await self._database.transact(lambda tx: reserve(tx, self._tenant_id, lease, key, scopes, need))

    async def fold_budgets(self) -> int:
        """See `protocol.LimitStore.fold_budgets`."""
        return await self._database.transact(lambda tx: fold(tx, self._tenant_id))


async def read_limit(tx: Transaction, tenant_id: str, key: str) -> Limit:
    """One key with its holders."""
    place = {"tenant_id": tenant_id, "key": key}
    row = await tx.row("get_limit", **place, most=MOST_WAITING)
    assert row is not None
    holders = await tx.rows("slot_holders", **place, limit=SHOWN_HOLDERS)
    rate = await tx.row("get_rate", **place)
    its = None if rate is None else Rate(rate["per_minute"], rate["started"], rate["by_hand"], rate["next_at"])
    return Limit(key, **row, holders=tuple(holder["job_id"] for holder in holders), rate=its)
