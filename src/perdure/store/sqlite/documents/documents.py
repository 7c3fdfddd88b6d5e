"""The documents of one tenant as rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from perdure.model.documents import Document, DocumentRange, NewDocument
from perdure.model.jobs import Lease
from perdure.store.document_rows import document_of
from perdure.store.errors import lease_lost
from perdure.store.sqlite.engine.batch import NOTHING
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.leases.lease_check import held_claim


class SqliteDocuments:
    """See `protocol.DocumentStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def read_document(self, collection: str, key: str) -> Document | None:
        """See `protocol.DocumentStore.read_document`."""
        row = await self._engine.row("read_document", tenant_id=self._tenant_id, collection=collection, key=key)
        return None if row is None else document_of(row, CODEC)

    async def list_documents(self, within: DocumentRange, *, limit: int, last: bool = False) -> list[Document]:
        """See `protocol.DocumentStore.list_documents`."""
        statement = "last_documents" if last else "first_documents"
        rows = await self._engine.rows(statement, tenant_id=self._tenant_id, limit=limit, **within._asdict())
        return [document_of(row, CODEC) for row in rows]

    async def change_documents(
        self, *, put: Sequence[NewDocument] = (), remove: Sequence[DocumentRange] = (), lease: Lease | None = None
    ) -> int:
        """See `protocol.DocumentStore.change_documents`."""

        def change(conn: sqlite3.Connection, now: int) -> int:
            if lease is not None and held_claim(conn, now, self._tenant_id, lease) is None:
                raise lease_lost(lease)
            removed = 0
            for range in remove:
                place = {"tenant_id": self._tenant_id, **range._asdict()}
                removed += len(conn.execute(SQL["remove_documents"], place).fetchall())
            for new in put:
                conn.execute(SQL["put_document"], {"tenant_id": self._tenant_id, **new._asdict(), "now": now})
            return removed

        return await self._engine.write(change, NOTHING)
