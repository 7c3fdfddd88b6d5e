"""The pauses of the queues of one tenant."""

from __future__ import annotations

import sqlite3

from perdure.model.ids import uuid7
from perdure.model.jobs import lane_of
from perdure.model.queues import QueuePause
from perdure.store.queue_rows import pause_of
from perdure.store.sqlite.engine.batch import NOTHING, WORK
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL


class SqliteQueues:
    """See `protocol.QueueStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def pause_queue(
        self, queue: str, *, by: str, via: str | None = None, reason: str | None = None
    ) -> QueuePause:
        """See `protocol.QueueStore.pause_queue`."""
        of = {"tenant_id": self._tenant_id, "queue": queue, "lane": lane_of(self._tenant_id, queue)}
        values = {**of, "id": str(uuid7()), "by": by, "via": via, "reason": reason}

        def pause(conn: sqlite3.Connection, now: int) -> QueuePause:
            row = conn.execute(SQL["pause_queue"], {**values, "now": now}).fetchone()
            return pause_of(row or conn.execute(SQL["open_pause"], of).fetchone(), CODEC)

        return await self._engine.write(pause, NOTHING)

    async def resume_queue(
        self, queue: str, *, by: str, via: str | None = None, reason: str | None = None
    ) -> QueuePause | None:
        """See `protocol.QueueStore.resume_queue`."""
        values = {"lane": lane_of(self._tenant_id, queue), "by": by, "via": via, "reason": reason}

        def resume(conn: sqlite3.Connection, now: int) -> QueuePause | None:
            row = conn.execute(SQL["resume_queue"], {**values, "now": now}).fetchone()
            return None if row is None else pause_of(row, CODEC)

        return await self._engine.write(resume, WORK)

    async def list_pauses(
        self, *, queue: str | None = None, only_open: bool = False, limit: int = 1000
    ) -> list[QueuePause]:
        """See `protocol.QueueStore.list_pauses`."""
        rows = await self._engine.rows(
            "list_pauses", tenant_id=self._tenant_id, queue=queue, only_open=only_open, limit=limit
        )
        return [pause_of(row, CODEC) for row in rows]
