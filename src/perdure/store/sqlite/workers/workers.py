"""Workers as rows."""

from __future__ import annotations

import json
import sqlite3

from perdure.model.ids import MIN_SUFFIX_DIGITS
from perdure.model.workers import WorkerCommand, WorkerInfo, WorkerState
from perdure.store.errors import ambiguous_id, worker_not_found
from perdure.store.rows import worker_of
from perdure.store.sqlite.engine.base import SQL, Base
from perdure.store.sqlite.engine.database import CODEC
from perdure.store.sqlite.engine.writer import NOTHING, WORK


class Workers(Base):
    """See `protocol.WorkerStore`."""

    async def register_worker(self, info: WorkerInfo) -> None:
        """See `protocol.WorkerStore.register_worker`."""

        def one(conn: sqlite3.Connection, now: int) -> None:
            queues, kinds = json.dumps(list(info.queues)), json.dumps(list(info.kinds))
            conn.execute(
                SQL["register_worker"],
                (info.id, self.tenant_id, info.host, info.pid, queues, kinds, info.concurrency, info.state, now, now),
            )

        await self._write(one, NOTHING)

    async def beat_worker(self, worker_id: str, *, state: WorkerState) -> WorkerCommand | None:
        """See `protocol.WorkerStore.beat_worker`."""

        def one(conn: sqlite3.Connection, now: int) -> WorkerCommand | None:
            row = conn.execute(SQL["beat_worker"], (now, state, worker_id, self.tenant_id)).fetchone()
            return WorkerCommand(row["command"]) if row is not None and row["command"] is not None else None

        return await self._write(one, NOTHING)

    async def list_workers(self, *, include_stopped: bool = False) -> list[WorkerInfo]:
        """See `protocol.WorkerStore.list_workers`."""
        rows = await self._rows("list_workers", {"tenant": self.tenant_id, "include_stopped": include_stopped})
        return [worker_of(row, CODEC) for row in rows]

    async def command_worker(self, worker_id: str, command: WorkerCommand) -> None:
        """See `protocol.WorkerStore.command_worker`."""

        def one(conn: sqlite3.Connection, _: int) -> None:
            where = {"text": worker_id, "tenant": self.tenant_id}
            found = [row["id"] for row in conn.execute(SQL["find_worker"], where)]
            if not found or (found[0] != worker_id and len(worker_id) < MIN_SUFFIX_DIGITS):
                raise worker_not_found(worker_id)
            if len(found) > 1 and found[0] != worker_id:
                raise ambiguous_id(worker_id)
            conn.execute(SQL["command_worker"], (command, found[0]))

        await self._write(one, WORK)
