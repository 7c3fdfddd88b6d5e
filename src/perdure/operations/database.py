"""The database: its schema, its size, and what is deleted from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from perdure.model.errors import InvalidInput, StoreError
from perdure.model.retention import StoreSizes
from perdure.model.timing import Duration
from perdure.operations.registry import Role, operation

if TYPE_CHECKING:
    from perdure import Client
    from perdure.store.migration_script import MigrationScript


class SchemaFit(StrEnum):
    """Whether the schema of the database fits this version of perdure."""

    OK = "ok"
    MISSING = "missing"
    OUTDATED = "outdated"
    TOO_NEW = "too new"


@dataclass(frozen=True, slots=True)
class SchemaMigration:
    """One numbered change of the schema. applied_at: UTC; None: it is not applied."""

    number: int
    name: str
    checksum: str
    applied_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """What the database is. server: the engine and its version. schema: the version it has, 0 without a schema; needed: the
    version this perdure needs. sizes: None unless the schema fits."""

    server: str
    schema: int
    needed: int
    verdict: SchemaFit
    migrations: tuple[SchemaMigration, ...]
    sizes: StoreSizes | None = None


@dataclass(frozen=True, slots=True)
class Migrated:
    """The migrations that were applied, and the version that the schema has now."""

    applied: tuple[SchemaMigration, ...]
    schema: int


@operation("database.status", role=Role.VIEWER)
async def database_status(client: Client, *, with_sizes: bool = True) -> DatabaseStatus:
    """What the database is, whether its schema fits, and how large its tables are; also where there is no schema.

    Numbers of rows are estimates, or counted up to a limit.
    """
    found = await client.database.schema_status()
    if found.current == 0:
        fit = SchemaFit.MISSING
    elif found.current == found.needed:
        fit = SchemaFit.OK
    else:
        fit = SchemaFit.OUTDATED if found.current < found.needed else SchemaFit.TOO_NEW
    sizes = await client.database.sizes() if with_sizes and fit is SchemaFit.OK else None
    migrations = tuple(SchemaMigration(m.number, m.name, m.checksum, m.applied_at) for m in found.migrations)
    return DatabaseStatus(found.server, found.current, found.needed, fit, migrations, sizes)


@operation("database.migrate", role=Role.ADMIN)
async def migrate_database(client: Client) -> Migrated:
    """Create or upgrade the schema. One migrator at a time, and all of a migration or nothing."""
    applied = await client.database.migrate()
    version = (await client.database.schema_status()).current
    return Migrated(tuple(SchemaMigration(m.number, m.name, m.checksum, m.applied_at) for m in applied), version)


@operation("database.backup", role=Role.ADMIN, errors=(InvalidInput, StoreError))
async def backup_database(client: Client, file: str, *, overwrite: bool = False) -> int:
    """Copy a SQLite database to another file on the machine of the client, while workers run; return how many bytes it has."""
    return await client.database.backup(file, overwrite=overwrite)


@operation("database.prune", role=Role.ADMIN, errors=(InvalidInput,))
async def prune_jobs(
    client: Client,
    *,
    older_than: Duration,
    status: tuple[str, ...] = (),
    kind: tuple[str, ...] = (),
    queue: tuple[str, ...] = (),
    keep_logs: bool = False,
    export: str | None = None,
    batch: int = 500,
    dry_run: bool = False,
    on_batch: Callable[[int], None] | None = None,
) -> int:
    """Delete jobs that ended at least `older_than` ago, permanently; return how many. Arguments as for `Database.prune`.

    Stopped at any moment it leaves whole jobs, and can be called again to continue. dry_run: only count them. on_batch: called
    with the number so far after each transaction.
    """
    return await client.database.prune(
        older_than=older_than,
        status=status,
        kind=kind,
        queue=queue,
        keep_logs=keep_logs,
        export=export,
        batch=batch,
        dry_run=dry_run,
        on_batch=on_batch,
    )


def schema_script(url: str) -> MigrationScript:
    """The migrations as SQL, for the kind of database that a URL names; it asks no database. Raises MalformedUrl."""
    from perdure.store.migration_script import migration_script

    return migration_script(url)
