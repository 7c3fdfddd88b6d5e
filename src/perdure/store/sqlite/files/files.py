"""The files of jobs of one tenant."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from uuid import UUID

from perdure.model.ids import uuid7
from perdure.model.jobs import Lease
from perdure.model.task_records import JobFile, NewFile
from perdure.store.blobs.contents import BlobFolders, ContentRow, Contents, identity_of
from perdure.store.errors import lease_lost
from perdure.store.sqlite.engine.batch import NOTHING
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.leases.lease_check import held_claim
from perdure.store.task_rows import file_of

_DAY = 86_400_000_000  # microseconds


class SqliteFiles(Contents):
    """See `protocol.FileStore`."""

    def __init__(self, engine: Engine, tenant_id: str, folders: BlobFolders) -> None:
        super().__init__(folders, tenant_id)
        self._engine = engine

    async def add_inputs(self, job_id: UUID, files: Sequence[NewFile]) -> None:
        """See `protocol.FileStore.add_inputs`."""
        await self._engine.write(lambda conn, now: self._add(conn, now, job_id, files, is_input=1, attempt=0), NOTHING)

    async def drop_inputs(self, job_id: UUID) -> None:
        """See `protocol.FileStore.drop_inputs`."""
        values = {"job_id": str(job_id), "tenant_id": self._tenant_id}
        await self._engine.write(lambda conn, _: conn.execute(SQL["drop_inputs"], values), NOTHING)

    async def add_outputs(self, lease: Lease, files: Sequence[NewFile]) -> None:
        """See `protocol.FileStore.add_outputs`."""

        def add(conn: sqlite3.Connection, now: int) -> None:
            if held_claim(conn, now, self._tenant_id, lease) is None:
                raise lease_lost(lease)
            self._add(conn, now, lease.job_id, files, is_input=0, attempt=lease.attempt)

        await self._engine.write(add, NOTHING)

    async def list_files(self, job_id: UUID) -> list[JobFile]:
        """See `protocol.FileStore.list_files`."""
        rows = await self._engine.rows("list_files", job_id=str(job_id), tenant_id=self._tenant_id)
        return [file_of(row, CODEC) for row in rows]

    async def _identity(self) -> str:
        row = await self._engine.row("schema_made")
        assert row is not None
        return identity_of(row["made"])

    async def _content(self, job_id: UUID, path: str, *, is_input: bool, attempt: int) -> ContentRow | None:
        values = {"job_id": str(job_id), "tenant_id": self._tenant_id, "is_input": is_input, "attempt": attempt}
        row = await self._engine.row("read_content", path=path, **values)
        return None if row is None else ContentRow(row["hash"], row["content"])

    async def _blobs_in_use(self, hashes: Sequence[str]) -> Collection[str]:
        rows = await self._engine.rows("blobs_in_use", tenant_id=self._tenant_id, hashes=json.dumps(hashes))
        return {row["hash"] for row in rows}

    async def _forget_rows(self) -> int:
        def forget(conn: sqlite3.Connection, now: int) -> int:
            values = {"tenant_id": self._tenant_id, "before": now - _DAY}
            conn.execute(SQL["drop_strays"], values)
            return conn.execute(SQL["drop_contents"], values).rowcount

        return await self._engine.write(forget, NOTHING)

    def _add(
        self,
        conn: sqlite3.Connection,
        now: int,
        job_id: UUID,
        files: Sequence[NewFile],
        *,
        is_input: int,
        attempt: int,
    ) -> None:
        tenant = {"tenant_id": self._tenant_id, "now": now}
        contents = ({**tenant, "hash": file.hash, "size": file.size, "content": file.content} for file in files)
        conn.executemany(SQL["add_contents"], contents)
        of = {**tenant, "job_id": str(job_id), "is_input": is_input, "attempt": attempt}
        rows = ({**of, "id": str(uuid7()), "path": file.path, "hash": file.hash, "size": file.size} for file in files)
        conn.executemany(SQL["add_files"], rows)
