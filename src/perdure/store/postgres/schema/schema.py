"""The schema and the database itself, the same for all tenants."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from perdure.model.errors import InvalidInput, MigrationChanged
from perdure.model.urls import has_secret
from perdure.store.errors import check_schema_version, foreign_schema
from perdure.store.postgres.engine.connections import COMMON, Connection, close_quietly, connect, transaction
from perdure.store.postgres.engine.database import Database, Transaction
from perdure.store.postgres.engine.driver_errors import CLIENT_LIBRARY_ERRORS, cannot_connect, translated
from perdure.store.postgres.engine.engine import Engine
from perdure.store.postgres.engine.statements import PACKAGE, STATEMENTS
from perdure.store.postgres.schema.schema_check import known_tables
from perdure.store.protocol import Migration, SchemaStatus
from perdure.store.statements import load_migrations


class PostgresSchema:
    """See `protocol.SchemaStore`."""

    def __init__(self, engine: Engine) -> None:
        self._database = engine.database
        self._url = engine.url
        self._where = engine.where
        self._between = "" if engine.notifier.hears_others else " through a pooler, without LISTEN: workers poll"

    async def schema_status(self) -> SchemaStatus:
        """See `protocol.SchemaStore.schema_status`."""
        return await self._status(self._database)

    async def _status(self, source: Database | Transaction) -> SchemaStatus:
        # Before the record of migrations: tables that a migrator makes meanwhile come together with theirs.
        found = await source.rows("objects_in_schema")
        version = await source.row("server_version")
        exists = await source.row("has_schema")
        rows = await source.rows("applied_migrations") if exists and exists["has_migrations"] else []
        applied = [Migration(row["number"], row["name"], row["checksum"], "", row["applied_at"]) for row in rows]
        if found and not applied:
            raise foreign_schema([row["name"] for row in found], self._where)
        known = load_migrations(PACKAGE)
        return SchemaStatus(
            current=max((m.number for m in applied), default=0),
            needed=len(known),
            server=f"PostgreSQL {version['version'] if version else 'of an unknown version'}" + self._between,
            migrations=_side_by_side(known, applied),
        )

    async def check_schema(self) -> None:
        """See `protocol.SchemaStore.check_schema`."""
        status = await self.schema_status()
        check_schema_version(status.current, status.needed, self._where)
        _check_unchanged(status.migrations, self._where)

    async def migrate(self, *, allow_other_tables: bool = True) -> list[Migration]:  # noqa: ARG002  it has a schema of its own
        """See `protocol.SchemaStore.migrate`."""
        try:
            connection = await connect(self._url, COMMON)
        except CLIENT_LIBRARY_ERRORS as error:
            raise cannot_connect(self._where, error) from error
        try:
            applied: list[Migration] = []
            while (migration := await self._apply_next(connection)) is not None:
                applied.append(migration)
            return applied
        except CLIENT_LIBRARY_ERRORS as error:
            raise translated(error) from error
        finally:
            await close_quietly(connection)

    async def _apply_next(self, connection: Connection) -> Migration | None:
        """The first migration that was not applied yet, in a transaction of its own; None: there is none."""
        async with transaction(connection):
            tx = Transaction(connection, again=False)
            await tx.rows("lock_migrations")
            status = await self._status(tx)
            if status.current > status.needed:
                check_schema_version(status.current, status.needed, self._where)
            _check_unchanged(status.migrations, self._where)
            migration = next((m for m in status.migrations if m.applied_at is None), None)
            return None if migration is None else await self._apply(tx, migration)

    async def _apply(self, tx: Transaction, migration: Migration) -> Migration:
        exists = await tx.row("has_schema")
        if not exists or not exists["has_schema"]:
            await tx.connection.execute("create schema perdure")
        if not exists or not exists["has_migrations"]:
            await tx.connection.execute(STATEMENTS["create_migrations"].sql)
        await tx.connection.execute(migration.sql)
        row = await tx.row(
            "record_migration", number=migration.number, name=migration.name, checksum=migration.checksum
        )
        return replace(migration, applied_at=row["applied_at"] if row else None)

    async def other_tables(self) -> list[str]:
        """See `protocol.SchemaStore.other_tables`."""
        return [row["name"] for row in await self._database.rows("other_tables", known=known_tables())]

    async def backup(self, file: str, *, overwrite: bool) -> int:  # noqa: ARG002  it only says how to do it
        """See `protocol.SchemaStore.backup`."""
        url = '"$PERDURE_DATABASE_URL"'  # not for the screen
        if not has_secret(self._url):
            url = shlex.quote("postgresql://" + self._url.strip().partition("://")[2])
        raise InvalidInput(
            "a PostgreSQL database is not copied by perdure, but by pg_dump; workers may run meanwhile",
            hint=f"pg_dump --format=custom --schema=perdure --file={shlex.quote(file)} {url}",
        )

    async def kinds(self) -> list[str]:
        """See `protocol.SchemaStore.kinds`."""
        return [row["kind"] for row in await self._database.rows("list_kinds")]


def _side_by_side(known: Sequence[Migration], applied: Sequence[Migration]) -> tuple[Migration, ...]:
    """The shipped migrations, with the time and checksum of those that were applied; and those a newer perdure applied."""
    done = {m.number: m for m in applied}
    numbers = {m.number for m in known}
    return (
        *(
            replace(m, applied_at=done[m.number].applied_at, checksum=done[m.number].checksum)
            if m.number in done
            else m
            for m in known
        ),
        *(m for m in applied if m.number not in numbers),
    )


def _check_unchanged(migrations: Sequence[Migration], where: str) -> None:
    shipped = {m.number: m.checksum for m in load_migrations(PACKAGE)}
    for migration in migrations:
        if shipped.get(migration.number, migration.checksum) != migration.checksum:
            raise MigrationChanged(
                f"{where}: migration {migration.number:04d}_{migration.name} was applied in another form than shipped here",
                hint="install the perdure that created the schema, or compare the two with perdure db migrate --dump-sql",
            )
