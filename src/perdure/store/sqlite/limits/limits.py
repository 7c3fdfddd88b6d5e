"""The limits of concurrency keys of one tenant."""

from __future__ import annotations

import sqlite3
from uuid import UUID

from perdure.model.limits import MOST_WAITING, SHOWN_HOLDERS, Limit
from perdure.store.sqlite.engine.batch import WORK
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
        return [Limit(row["key"], row["max"], row["in_use"], row["waiting"], bool(row["set_by_hand"])) for row in rows]

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


def read_limit(conn: sqlite3.Connection, tenant_id: str, key: str) -> Limit:
    """One key with its holders."""
    place = {"tenant_id": tenant_id, "key": key}
    row = conn.execute(SQL["get_limit"], {**place, "most": MOST_WAITING}).fetchone()
    holders = conn.execute(SQL["slot_holders"], {**place, "limit": SHOWN_HOLDERS})
    ids = tuple(UUID(holder["job_id"]) for holder in holders)
    return Limit(key, row["max"], row["in_use"], row["waiting"], bool(row["set_by_hand"]), ids)
