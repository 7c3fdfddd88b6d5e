"""Documents: rows into records; both dialects alike."""

from __future__ import annotations

import json

from perdure.model.documents import Document
from perdure.store.rows import Codec, Row


def document_of(row: Row, codec: Codec) -> Document:
    """A row of `documents`."""
    return Document(
        key=row["key"],
        value=json.loads(row["value"]),
        body=row["body"],
        created_at=codec.time(row["created_at"]),
        updated_at=codec.time(row["updated_at"]),
    )
