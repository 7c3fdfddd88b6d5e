"""Errors of long-term memory."""

from __future__ import annotations

from uuid import UUID

from perdure.model.errors.base import Conflict, InvalidInput, PerdureError
from perdure.model.ids import short_id


class EmptyQuery(InvalidInput):
    """A search of memory needs words to search for."""

    code = "empty-query"


class UnknownScope(InvalidInput):
    """A scope of memory is job:<id>, agent:<id>, user:<id>, project:<name> or tenant."""

    code = "unknown-scope"


class TextTooLong(InvalidInput):
    """The text of an entry of memory, or a query, has more characters than the limit."""

    code = "text-too-long"


class MixedDimensions(InvalidInput):
    """Vectors of memory have different numbers of dimensions, so they cannot be compared."""

    code = "mixed-dimensions"


class EntrySuperseded(Conflict):
    """Another entry of memory has replaced this one already. `superseded_by` is the id of that entry."""

    code = "entry-superseded"

    def __init__(self, message: str, superseded_by: UUID) -> None:
        newer = short_id(superseded_by)
        super().__init__(
            message,
            hint=f"perdure memory get {newer} shows that entry; supersede it, or bring the old one back: "
            "perdure memory restore",
        )
        self.superseded_by = superseded_by


class EmbedderUnavailable(PerdureError):
    """The embedding endpoint of memory gives no vectors now."""

    code = "embedder-unavailable"
