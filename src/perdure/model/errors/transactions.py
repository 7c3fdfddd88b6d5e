"""Errors of enqueueing in a transaction of the caller: `tx=`."""

from __future__ import annotations

from perdure.model.errors.base import InvalidInput


class UnsupportedTransaction(InvalidInput):
    """The object given as tx= is no connection that perdure can enqueue on."""

    code = "unsupported-transaction"


class NoTransaction(InvalidInput):
    """The connection given as tx= has no open transaction, so the job would be committed at once."""

    code = "no-transaction"


class OtherDatabase(InvalidInput):
    """The connection given as tx= is to another database than the App's."""

    code = "other-database"
