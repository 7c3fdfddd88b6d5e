"""The limits of concurrency keys of one tenant."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from uuid import UUID

from perdure.model.limits import MOST_WAITING, SHOWN_HOLDERS, Limit, Rate
from perdure.store.sqlite.engine.batch import WORK
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL


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
