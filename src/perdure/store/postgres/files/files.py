"""The files of jobs of one tenant."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC
from uuid import UUID

from perdure.model.jobs import Lease
from perdure.model.task_records import JobFile, NewFile
from perdure.store.blobs.contents import BlobFolders, ContentRow, Contents, identity_of
from perdure.store.errors import lease_lost
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.engine import Engine
from perdure.store.task_rows import file_of


class PostgresFiles(Contents):
    """See `protocol.FileStore`."""

    def __init__(self, engine: Engine, tenant_id: str, folders: BlobFolders) -> None:
        super().__init__(folders, tenant_id)
        self._database = engine.database

    async def add_inputs(self, job_id: UUID, files: Sequence[NewFile]) -> None:
        """See `protocol.FileStore.add_inputs`."""
        await self._database.transact(lambda tx: self._add(tx, job_id, files, is_input=True, attempt=0))

    async def drop_inputs(self, job_id: UUID) -> None:
        """See `protocol.FileStore.drop_inputs`."""
        await self._database.rows("drop_inputs", job_id=job_id, tenant_id=self._tenant_id)

    async def add_outputs(self, lease: Lease, files: Sequence[NewFile]) -> None:
        """See `protocol.FileStore.add_outputs`."""

        async def add(tx: Transaction) -> None:
            await hold_lease(tx, self._tenant_id, lease)
            await self._add(tx, lease.job_id, files, is_input=False, attempt=lease.attempt)

        await self._database.transact(add)

    async def list_files(self, job_id: UUID) -> list[JobFile]:
        """See `protocol.FileStore.list_files`."""
        rows = await self._database.rows("list_files", job_id=job_id, tenant_id=self._tenant_id)
        return [file_of(row, CODEC) for row in rows]

    async def _identity(self) -> str:
        row = await self._database.row("schema_made")
        assert row is not None
        identity = identity_of(row["made"].astimezone(UTC))
        # the user's data folder is that of all databases, also of copies that were made with `create database ... template`
        return identity if self._folders.settings.directory else f"{row['name']}-{identity}"

    async def _content(self, job_id: UUID, path: str, *, is_input: bool, attempt: int) -> ContentRow | None:
        row = await self._database.row(
            "read_content", job_id=job_id, tenant_id=self._tenant_id, is_input=is_input, attempt=attempt, path=path
        )
        return None if row is None else ContentRow(row["hash"], row["content"])

    async def _blobs_in_use(self, hashes: Sequence[str]) -> Collection[str]:
        rows = await self._database.rows("blobs_in_use", tenant_id=self._tenant_id, hashes=[*hashes])
        return {row["hash"] for row in rows}

    async def _forget_rows(self) -> int:
        await self._database.rows("drop_strays", tenant_id=self._tenant_id)
        return len(await self._database.rows("drop_contents", tenant_id=self._tenant_id))

    async def _add(
        self, tx: Transaction, job_id: UUID, files: Sequence[NewFile], *, is_input: bool, attempt: int
    ) -> None:
        contents = {file.hash: file for file in files}
        await tx.rows(
            "add_contents",
            tenant_id=self._tenant_id,
            hashes=[*contents],
            sizes=[file.size for file in contents.values()],
            contents=[file.content for file in contents.values()],
        )
        await tx.rows(
            "add_files",
            tenant_id=self._tenant_id,
            job_id=job_id,
            attempt=attempt,
            is_input=is_input,
            paths=[file.path for file in files],
            hashes=[file.hash for file in files],
            sizes=[file.size for file in files],
        )


async def hold_lease(tx: Transaction, tenant_id: str, lease: Lease) -> None:
    """Keep a live lease live until the end of the transaction. Raises LeaseLost."""
    held = await tx.rows(
        "hold_lease", job_id=lease.job_id, attempt=lease.attempt, worker_id=lease.worker_id, tenant_id=tenant_id
    )
    if not held:
        raise lease_lost(lease)
