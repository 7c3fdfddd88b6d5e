"""What a role may not do is called that, and not a database that is away. PostgreSQL only."""

import asyncpg

from perdure.model.errors import StoreUnreachable
from perdure.store.postgres.engine.driver_errors import translated


def test_a_right_that_is_missing_is_named() -> None:
    error = translated(asyncpg.InsufficientPrivilegeError("permission denied for table jobs"))
    assert isinstance(error, StoreUnreachable)
    assert error.message == "the database does not let this user do that: permission denied for table jobs"
    assert "grant" in str(error.hint)
