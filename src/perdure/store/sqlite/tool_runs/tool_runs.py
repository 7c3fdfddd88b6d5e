"""The runs of coding CLIs of one tenant."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from uuid import UUID

from perdure.model.jobs import Lease
from perdure.model.task_records import OutputChunk, ToolRun
from perdure.store.errors import lease_lost
from perdure.store.sqlite.engine.batch import NOTHING
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.leases.lease_check import held_claim
from perdure.store.task_rows import chunk_of, tool_run_of


class SqliteToolRuns:
    """See `protocol.ToolRunStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def list_tool_runs(self, job_id: UUID) -> list[ToolRun]:
        """See `protocol.ToolRunStore.list_tool_runs`."""
        rows = await self._engine.rows("list_tool_runs", job_id=str(job_id), tenant_id=self._tenant_id)
        return [tool_run_of(row, CODEC) for row in rows]

    async def append_output(self, lease: Lease, chunks: Sequence[OutputChunk]) -> None:
        """See `protocol.ToolRunStore.append_output`."""

        def append(conn: sqlite3.Connection, now: int) -> None:
            if held_claim(conn, now, self._tenant_id, lease) is None:
                raise lease_lost(lease)
            of = {"job_id": str(lease.job_id), "attempt": lease.attempt, "now": now}
            rows = ({**of, "seq": c.seq, "stream": c.stream, "content": c.content} for c in chunks)
            conn.executemany(SQL["append_output"], rows)

        await self._engine.write(append, NOTHING)

    async def read_output(self, job_id: UUID, *, attempt: int, after: int = 0, limit: int = 100) -> list[OutputChunk]:
        """See `protocol.ToolRunStore.read_output`."""
        rows = await self._engine.rows(
            "read_output",
            job_id=str(job_id),
            tenant_id=self._tenant_id,
            attempt=attempt,
            after=after,
            limit=limit,
        )
        return [chunk_of(row) for row in rows]
