"""The base class of all errors, and the groups that errors of several nouns belong to."""

from __future__ import annotations

from typing import ClassVar


class PerdureError(Exception):
    """Base class of all errors. `code` is stable; `hint` says what to do next, if there is something to do."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = str(message)  # `raise Fail(error)` gives an exception
        self.hint = hint
        page = f"[perdure help {self.code}]"
        self.add_note(f"{hint}  {page}" if hint else page)


class InvalidInput(PerdureError, ValueError):
    """An argument is invalid; nothing was written."""

    code = "invalid-input"


class NotFound(PerdureError, LookupError):
    """Nothing has this id."""

    code = "not-found"


class Conflict(PerdureError):
    """The request does not fit the state the database is in."""

    code = "conflict"


class NotPermitted(PerdureError):
    """The caller may not do this."""

    code = "not-permitted"


class HandlerError(PerdureError):
    """A handler, its registration or one of its steps is wrong."""

    code = "handler-error"
