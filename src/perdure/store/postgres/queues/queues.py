"""The pauses of the queues of one tenant."""

from __future__ import annotations

from perdure.model.ids import uuid7
from perdure.model.jobs import lane_of
from perdure.model.queues import QueuePause
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.engine import Engine
from perdure.store.queue_rows import pause_of


class PostgresQueues:
    """See `protocol.QueueStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._notifier = engine.notifier
        self._tenant_id = tenant_id

    async def pause_queue(
        self, queue: str, *, by: str, via: str | None = None, reason: str | None = None
    ) -> QueuePause:
        """See `protocol.QueueStore.pause_queue`."""
        lane = lane_of(self._tenant_id, queue)
        of = {"tenant_id": self._tenant_id, "queue": queue, "lane": lane, "by": by, "via": via, "reason": reason}

        async def pause(tx: Transaction) -> QueuePause | None:
            row = await tx.row("pause_queue", id=uuid7(), **of) or await tx.row("open_pause", lane=lane)
            return None if row is None else pause_of(row, CODEC)

        while (paused := await self._database.transact(pause)) is None:
            pass  # another session ended the pause between the two statements
        return paused

    async def resume_queue(
        self, queue: str, *, by: str, via: str | None = None, reason: str | None = None
    ) -> QueuePause | None:
        """See `protocol.QueueStore.resume_queue`."""
        row = await self._database.row(
            "resume_queue", lane=lane_of(self._tenant_id, queue), by=by, via=via, reason=reason
        )
        if row is None:
            return None
        self._notifier.notify(self._tenant_id, "work")
        return pause_of(row, CODEC)

    async def list_pauses(
        self, *, queue: str | None = None, only_open: bool = False, limit: int = 1000
    ) -> list[QueuePause]:
        """See `protocol.QueueStore.list_pauses`."""
        rows = await self._database.rows(
            "list_pauses", tenant_id=self._tenant_id, queue=queue, only_open=only_open, limit=limit
        )
        return [pause_of(row, CODEC) for row in rows]
