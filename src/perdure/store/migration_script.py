"""The migrations of a dialect as one script, for who applies them by hand."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.model.errors import MalformedUrl
from perdure.store.protocol import Migration
from perdure.store.statements import compiled, load_migrations, load_statements

_DIALECTS = {"postgresql": "postgres", "postgres": "postgres", "sqlite": "sqlite", "memory": "sqlite"}


@dataclass(frozen=True, slots=True)
class MigrationScript:
    """Every migration, in order, and the SQL that applies and records them all in one transaction."""

    migrations: tuple[Migration, ...]
    sql: str


def migration_script(url: str) -> MigrationScript:
    """The script for the kind of database that a URL names; nothing is connected to. Raises MalformedUrl."""
    scheme = url.strip().partition(":")[0]
    dialect = _DIALECTS.get(scheme)
    if dialect is None:
        raise MalformedUrl(f"'{scheme}' is no kind of database", hint="--db postgresql:// or --db sqlite://")
    package = f"perdure.store.{dialect}"
    migrations, statements = load_migrations(package), load_statements(package)
    parts = ["begin;"]
    if dialect == "postgres":
        parts.append("create schema if not exists perdure;")
    parts.append(f"{statements['create_migrations']};")
    for m in migrations:
        parts.append(f"-- migration {m.number:04d} {m.name} (sha256 {m.checksum})\n{m.sql.rstrip()}")
        parts.append(f"{_recorded(m, statements['record_migration'])};")
    return MigrationScript(tuple(migrations), "\n\n".join([*parts, "commit;"]))


def _recorded(migration: Migration, statement: str) -> str:
    """What a migrator would record, so that perdure knows of a migration that was applied by hand."""
    values = {
        "number": str(migration.number),
        "name": f"'{migration.name}'",
        "checksum": f"'{migration.checksum}'",
        "now": "unixepoch() * 1000000",
    }
    return compiled("record_migration", statement, lambda _, parameter: values[parameter]).sql
