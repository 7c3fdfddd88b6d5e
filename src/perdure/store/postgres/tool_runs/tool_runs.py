"""The runs of coding CLIs of one tenant."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from perdure.model.jobs import Lease
from perdure.model.task_records import OutputChunk, ToolRun
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.engine import Engine
from perdure.store.postgres.files.files import hold_lease
from perdure.store.task_rows import chunk_of, tool_run_of


class PostgresToolRuns:
    """See `protocol.ToolRunStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._tenant_id = tenant_id

    async def list_tool_runs(self, job_id: UUID) -> list[ToolRun]:
        """See `protocol.ToolRunStore.list_tool_runs`."""
        rows = await self._database.rows("list_tool_runs", job_id=job_id, tenant_id=self._tenant_id)
        return [tool_run_of(row, CODEC) for row in rows]

    async def append_output(self, lease: Lease, chunks: Sequence[OutputChunk]) -> None:
        """See `protocol.ToolRunStore.append_output`."""

        async def append(tx: Transaction) -> None:
            await hold_lease(tx, self._tenant_id, lease)
            await tx.rows(
                "append_output",
                job_id=lease.job_id,
                attempt=lease.attempt,
                seqs=[chunk.seq for chunk in chunks],
                streams=[chunk.stream for chunk in chunks],
                contents=[chunk.content for chunk in chunks],
            )

        await self._database.transact(append)

    async def read_output(self, job_id: UUID, *, attempt: int, after: int = 0, limit: int = 100) -> list[OutputChunk]:
        """See `protocol.ToolRunStore.read_output`."""
        rows = await self._database.rows(
            "read_output", job_id=job_id, tenant_id=self._tenant_id, attempt=attempt, after=after, limit=limit
        )
        return [chunk_of(row) for row in rows]
