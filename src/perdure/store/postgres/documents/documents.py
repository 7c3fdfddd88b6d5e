"""The documents of one tenant as rows."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model.documents import Document, DocumentRange, NewDocument
from perdure.model.jobs import Lease
from perdure.store.document_rows import document_of
from perdure.store.errors import lease_lost
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.engine import Engine
from perdure.store.postgres.engine.locked_job import is_live


class PostgresDocuments:
    """See `protocol.DocumentStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._tenant_id = tenant_id

    async def read_document(self, collection: str, key: str) -> Document | None:
        """See `protocol.DocumentStore.read_document`."""
        row = await self._database.row("read_document", tenant_id=self._tenant_id, collection=collection, key=key)
        return None if row is None else document_of(row, CODEC)

    async def list_documents(self, within: DocumentRange, *, limit: int, last: bool = False) -> list[Document]:
        """See `protocol.DocumentStore.list_documents`."""
        statement = "last_documents" if last else "first_documents"
        rows = await self._database.rows(statement, tenant_id=self._tenant_id, limit=limit, **within._asdict())
        return [document_of(row, CODEC) for row in rows]

    async def change_documents(
        self, *, put: Sequence[NewDocument] = (), remove: Sequence[DocumentRange] = (), lease: Lease | None = None
    ) -> int:
        """See `protocol.DocumentStore.change_documents`."""

        async def change(tx: Transaction) -> int:
            if lease is not None:
                claim = await tx.row("lock_claim", job_id=lease.job_id)
                if claim is None or not is_live(claim, lease, self._tenant_id):
                    raise lease_lost(lease)
            removed = 0
            for range in sorted(remove):
                rows = await tx.rows("remove_documents", tenant_id=self._tenant_id, **range._asdict())
                removed += len(rows)
            for new in sorted(put, key=lambda new: (new.collection, new.key)):
                await tx.rows("put_document", tenant_id=self._tenant_id, **new._asdict())
            return removed

        return await self._database.transact(change)
