"""Errors of handlers and their registration."""

from __future__ import annotations

from perdure.model.errors.base import HandlerError


class UnknownHandler(HandlerError):
    """No handler of this name is registered."""

    code = "unknown-handler"


class DuplicateHandler(HandlerError):
    """Two handlers have the same name."""

    code = "duplicate-handler"
