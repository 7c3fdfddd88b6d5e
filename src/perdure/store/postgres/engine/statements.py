"""Every statement of this dialect, ready for the driver."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.store.statements import Statement, compiled, load_statements

PACKAGE = "perdure.store.postgres"

SQL: Mapping[str, str] = load_statements(PACKAGE)
"""As written, with `:name` parameters."""
STATEMENTS: Mapping[str, Statement] = {name: compiled(name, sql) for name, sql in SQL.items()}
"""For asyncpg, with `$1` parameters."""
