"""Errors of a database that does not answer."""

from __future__ import annotations

from perdure.model.errors.base import PerdureError


class StoreError(PerdureError):
    """The database cannot be used as perdure's store."""

    code = "store-error"


class StoreUnreachable(StoreError):
    """The database does not answer; trying again later may help."""

    code = "store-unreachable"


class FileReplaced(StoreError):
    """A file of the SQLite database was deleted or replaced while a process had it open; that process writes nothing more."""

    code = "file-replaced"
