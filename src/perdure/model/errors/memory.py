"""Errors of long-term memory."""

from __future__ import annotations

from perdure.model.errors.base import InvalidInput, PerdureError


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


class EmbedderUnavailable(PerdureError):
    """The embedding endpoint of memory gives no vectors now."""

    code = "embedder-unavailable"
