"""Documents. Part of `protocol.Store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perdure.model.documents import Document, DocumentRange, NewDocument
from perdure.model.jobs import Lease


class DocumentStore(Protocol):
    """The documents of one tenant: values under sorted keys, in collections. A job adds some by the effect `add_document`."""

    async def read_document(self, collection: str, key: str) -> Document | None:
        """One document; None if it is not there."""
        ...

    async def list_documents(self, within: DocumentRange, *, limit: int, last: bool = False) -> list[Document]:
        """The first documents of a range, in the order of their keys; last: the last ones, in reverse order."""
        ...

    async def change_documents(
        self, *, put: Sequence[NewDocument] = (), remove: Sequence[DocumentRange] = (), lease: Lease | None = None
    ) -> int:
        """Remove documents, then store others, in one transaction; return how many were removed. A document that is replaced
        keeps its `created_at`. lease: of the job that writes. Raises `LeaseLost`, and changes nothing, if it is not live."""
        ...
