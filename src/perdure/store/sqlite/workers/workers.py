"""The workers of one tenant as rows."""

from __future__ import annotations

import json
import sqlite3

from perdure.model.ids import MIN_SUFFIX_DIGITS
from perdure.model.workers import WorkerCommand, WorkerInfo, WorkerState
from perdure.store.errors import ambiguous_id, worker_not_found
from perdure.store.rows import worker_of
from perdure.store.sqlite.engine.batch import NOTHING, WORK
from perdure.store.sqlite.engine.codec import CODEC, span
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL


class SqliteWorkers:
    """See `protocol.WorkerStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def register_worker(self, info: WorkerInfo) -> None:
        """See `protocol.WorkerStore.register_worker`."""
        row = {
            "id": info.id,
            "tenant_id": self._tenant_id,
            "host": info.host,
            "pid": info.pid,
            "queues": json.dumps(list(info.queues)),
            "kinds": json.dumps(list(info.kinds)),
            "concurrency": info.concurrency,
            "grace": span(info.grace),
            "version": info.version,
            "state": info.state,
        }
        await self._engine.write(lambda conn, now: conn.execute(SQL["register_worker"], {**row, "now": now}), NOTHING)

    async def beat_worker(
        self, worker_id: str, *, state: WorkerState, hung: int = 0, blocked: int = 0
    ) -> WorkerCommand | None:
        """See `protocol.WorkerStore.beat_worker`."""

        def beat(conn: sqlite3.Connection, now: int) -> WorkerCommand | None:
            values = {
                "worker_id": worker_id,
                "tenant_id": self._tenant_id,
                "state": state,
                "hung": hung,
                "blocked": blocked,
                "now": now,
            }
            row = conn.execute(SQL["beat_worker"], values).fetchone()
            return WorkerCommand(row["command"]) if row is not None and row["command"] is not None else None

        return await self._engine.write(beat, NOTHING)

    async def list_workers(self, *, include_stopped: bool = False) -> list[WorkerInfo]:
        """See `protocol.WorkerStore.list_workers`."""
        rows = await self._engine.rows("list_workers", tenant_id=self._tenant_id, include_stopped=include_stopped)
        return [worker_of(row, CODEC) for row in rows]

    async def command_worker(self, worker_id: str, command: WorkerCommand) -> None:
        """See `protocol.WorkerStore.command_worker`."""

        def ask(conn: sqlite3.Connection, _: int) -> None:
            values = {"text": worker_id, "tenant_id": self._tenant_id}
            found = [row["id"] for row in conn.execute(SQL["find_worker"], values)]
            if not found or (found[0] != worker_id and len(worker_id) < MIN_SUFFIX_DIGITS):
                raise worker_not_found(worker_id)
            if len(found) > 1 and found[0] != worker_id:
                raise ambiguous_id(worker_id)
            conn.execute(SQL["command_worker"], {"worker_id": found[0], "command": command})

        await self._engine.write(ask, WORK)
