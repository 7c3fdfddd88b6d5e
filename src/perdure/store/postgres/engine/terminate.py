"""Ending sessions from the outside, as an operator does in an emergency and the chaos harness does on purpose."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.store.postgres.engine.connections import COMMON, close_quietly, connect
from perdure.store.postgres.engine.driver_errors import CLIENT_LIBRARY_ERRORS, cannot_connect, where_is
from perdure.store.postgres.engine.statements import STATEMENTS


async def end_backends(url: str, pids: Sequence[int]) -> int:
    """End those of these backends that are perdure's, of this user and in this database; return how many there were.

    Raises StoreUnreachable.
    """
    try:
        connection = await connect(url, COMMON)
    except CLIENT_LIBRARY_ERRORS as error:
        raise cannot_connect(where_is(url), error) from error
    try:
        end = STATEMENTS["end_backends"]
        return len(await connection.fetch(end.sql, *end.values({"pids": list(pids)})))
    except CLIENT_LIBRARY_ERRORS as error:
        raise cannot_connect(where_is(url), error) from error
    finally:
        await close_quietly(connection)
