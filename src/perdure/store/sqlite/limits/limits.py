"""The limits of concurrency keys of one tenant, and the budgets that its jobs share."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from perdure.model.budgets import Amounts, Budget
from perdure.model.jobs import Lease
from perdure.model.limits import MOST_WAITING, SHOWN_HOLDERS, Limit, Rate
from perdure.model.shared_budgets import Reserved, SharedBudget, hold_of, shared_budget_of, values_of
from perdure.store.sqlite.engine.batch import NOTHING, WORK
from perdure.store.sqlite.engine.codec import CODEC, stored
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.limits.budgets import fold, reserve


class SqliteLimits:
    """See `protocol.LimitStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def list_limits(self, *, limit: int = 1000) -> list[Limit]:
        """See `protocol.LimitStore.list_limits`."""
        rows = await self._engine.rows("list_limits", tenant_id=self._tenant_id, limit=limit, most=MOST_WAITING)
        rates = await self._engine.rows("list_rates", tenant_id=self._tenant_id, limit=limit)
        of = {row["key"]: Rate(row["per_minute"], row["started"], bool(row["by_hand"])) for row in rates}
        found = [
            Limit(
                row["key"],
                row["max"],
                row["in_use"],
                row["waiting"],
                bool(row["set_by_hand"]),
                rate=of.pop(row["key"], None),
            )
            for row in rows
        ]
        found += [await self.get_limit(key) for key in [*of][: limit - len(found)]]
        return sorted(found, key=lambda one: one.key)

    async def get_limit(self, key: str) -> Limit:
        """See `protocol.LimitStore.get_limit`."""
        return await self._engine.read(lambda conn: read_limit(conn, self._tenant_id, key))

    async def set_limit(self, key: str, max: int, *, by: str) -> None:
        """See `protocol.LimitStore.set_limit`."""
        values = {"tenant_id": self._tenant_id, "key": key, "max": max, "by": by}
        await self._engine.write(lambda conn, now: conn.execute(SQL["set_limit"], {**values, "now": now}), WORK)

    async def unset_limit(self, key: str) -> bool:
        """See `protocol.LimitStore.unset_limit`."""
        values = {"tenant_id": self._tenant_id, "key": key}
        found = await self._engine.write(lambda conn, _: conn.execute(SQL["unset_limit"], values).fetchall(), WORK)
        return bool(found)

    async def set_rate(self, key: str, per_minute: int | None, *, by: str) -> None:
        """See `protocol.LimitStore.set_rate`."""
        values = {"tenant_id": self._tenant_id, "key": key, "per_minute": per_minute, "by": by}
        await self._engine.write(lambda conn, now: conn.execute(SQL["set_rate"], {**values, "now": now}), WORK)

    async def say_rate(self, key: str, per_minute: int) -> None:
        """See `protocol.LimitStore.say_rate`."""
        values = {"tenant_id": self._tenant_id, "key": key, "per_minute": per_minute}
        await self._engine.write(lambda conn, now: conn.execute(SQL["say_rate"], {**values, "now": now}), WORK)

    async def set_budget(self, scope: str, budget: Budget, *, by: str) -> None:
        """See `protocol.LimitStore.set_budget`."""
        values = {name: stored(value) for name, value in values_of(budget).items()}
        values |= {"tenant_id": self._tenant_id, "scope": scope, "by": by}
        await self._engine.write(lambda conn, now: conn.execute(SQL["set_budget"], {**values, "now": now}), NOTHING)

    async def unset_budget(self, scope: str) -> bool:
        """See `protocol.LimitStore.unset_budget`."""
        values = {"tenant_id": self._tenant_id, "scope": scope}

        def unset(conn: sqlite3.Connection, _: int) -> bool:
            conn.execute(SQL["unset_holds"], values)
            return conn.execute(SQL["unset_budget"], values).fetchone() is not None

        return await self._engine.write(unset, NOTHING)

    async def list_budgets(self) -> list[SharedBudget]:
        """See `protocol.LimitStore.list_budgets`."""
        values = {"tenant_id": self._tenant_id}

        def read(conn: sqlite3.Connection) -> list[SharedBudget]:
            rows = conn.execute(SQL["list_budgets"], values).fetchall()
            holds = [hold_of(row) for row in conn.execute(SQL["list_holds"], values)] if rows else []
            return [shared_budget_of(row, holds) for row in rows]

        return await self._engine.read(read)

    async def reserve_budget(self, lease: Lease, key: str, scopes: Sequence[str], need: Amounts) -> Reserved:
        """See `protocol.LimitStore.reserve_budget`."""
        return await self._engine.write(
            lambda conn, now: reserve(conn, now, self._tenant_id, lease, key, scopes, need), NOTHING
        )

    async def fold_budgets(self) -> int:
        """See `protocol.LimitStore.fold_budgets`."""
        return await self._engine.write(lambda conn, _: fold(conn, self._tenant_id), NOTHING)


def read_limit(conn: sqlite3.Connection, tenant_id: str, key: str) -> Limit:
    """One key with its holders."""
    place = {"tenant_id": tenant_id, "key": key}
    row = conn.execute(SQL["get_limit"], {**place, "most": MOST_WAITING}).fetchone()
    holders = conn.execute(SQL["slot_holders"], {**place, "limit": SHOWN_HOLDERS})
    ids = tuple(UUID(holder["job_id"]) for holder in holders)
    rate = conn.execute(SQL["get_rate"], place).fetchone()
    its = (
        None
        if rate is None
        else Rate(rate["per_minute"], rate["started"], bool(rate["by_hand"]), _time(rate["next_at"]))
    )
    return Limit(key, row["max"], row["in_use"], row["waiting"], bool(row["set_by_hand"]), ids, its)


def _time(value: int | None) -> datetime | None:
    return None if value is None else CODEC.time(value)
