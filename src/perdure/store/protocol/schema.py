"""The schema of the database. Part of `protocol.Store`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered schema change and whether it has been applied (UTC)."""

    number: int
    name: str
    checksum: str
    sql: str
    applied_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """What the database has and what this version of perdure needs; `current` is 0 if there is no schema."""

    current: int
    needed: int
    server: str
    """The engine and its version, for people."""
    migrations: tuple[Migration, ...]


class SchemaStore(Protocol):
    """The schema and the database itself."""

    async def schema_status(self) -> SchemaStatus:
        """Compare the schema with what is needed; works on an empty database and on a newer schema.

        Raises `ForeignDatabase` if other tables are in the way of the schema.
        """
        ...

    async def migrate(self, *, allow_other_tables: bool = True) -> list[Migration]:
        """Apply what is missing, in order, under a lock that admits one process at a time; return what was applied.

        allow_other_tables: also in a SQLite file that has other tables and not yet perdure's; on PostgreSQL perdure has a schema
        of its own.
        Raises `ForeignDatabase` if other tables are in the way, `SchemaTooNew`, or `MigrationChanged` if an applied migration's
        checksum differs. A failing migration changes nothing.
        """
        ...

    async def check_schema(self) -> None:
        """Raise `SchemaMissing`, `ForeignDatabase`, `SchemaOutdated`, `SchemaTooNew` or `MigrationChanged` unless the schema fits
        exactly."""
        ...

    async def other_tables(self) -> list[str]:
        """Tables and views that are not perdure's; on PostgreSQL with their schemas, without those of extensions."""
        ...

    async def backup(self, file: str, *, overwrite: bool) -> int:
        """Copy a SQLite database to another file, as it is at one moment, while others write to it; return how many bytes it has.

        The copy has mode 0600 and appears when it is complete and synced, with a folder of its blobs. overwrite: replace a
        file that is there. Raises `InvalidInput` for a file that exists or is the database itself, and for other stores;
        `StoreError` if it cannot be written.
        """
        ...

    async def kinds(self) -> list[str]:
        """Every kind of job in the database, of all tenants, in any order. It costs an index lookup for each kind, however many
        jobs there are."""
        ...
