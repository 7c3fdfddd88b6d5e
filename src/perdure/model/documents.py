"""Documents: values under sorted keys, which the adapters of other libraries keep."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple


class NewDocument(NamedTuple):
    """A document to be stored. value: JSON text. body: bytes that belong to it. keep: one that is there stays as it is."""

    collection: str
    key: str
    value: str
    body: bytes | None = None
    keep: bool = False


class Document(NamedTuple):
    """A document as it is stored."""

    key: str
    value: Any
    body: bytes | None
    created_at: datetime
    updated_at: datetime


class DocumentRange(NamedTuple):
    """The documents of a collection from a key on, and before another; None: to the end. Keys are compared by code points."""

    collection: str
    first: str = ""
    before: str | None = None
