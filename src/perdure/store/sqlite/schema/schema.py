"""The schema and the database itself."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
from collections.abc import Iterable, Iterator

from perdure.model.errors import InvalidInput, MigrationChanged, StoreError
from perdure.store.blobs.contents import BlobFolders
from perdure.store.errors import check_schema_version, foreign_file
from perdure.store.protocol import Migration, SchemaStatus
from perdure.store.sqlite.engine.batch import NOTHING
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.connection import savepoint
from perdure.store.sqlite.engine.driver_errors import translated
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.schema.backup import back_up
from perdure.store.sqlite.schema.schema_check import names_of_ours
from perdure.store.statements import load_migrations

_MIGRATIONS = load_migrations("perdure.store.sqlite")


def _applied(conn: sqlite3.Connection) -> dict[int, Migration]:
    if conn.execute(SQL["has_migrations"]).fetchone() is None:
        return {}
    rows = conn.execute(SQL["applied_migrations"])
    return {
        r["number"]: Migration(r["number"], r["name"], r["checksum"], "", CODEC.time(r["applied_at"])) for r in rows
    }


def _check_unchanged(applied: dict[int, Migration], where: str) -> None:
    for shipped in _MIGRATIONS:
        found = applied.get(shipped.number)
        if found is not None and found.checksum != shipped.checksum:
            raise MigrationChanged(
                f"migration {shipped.number} ({shipped.name}) of {where} is not the one this perdure ships: "
                "its checksum differs",
                hint="use the perdure that made it, or start a new database",
            )


def check_not_foreign(conn: sqlite3.Connection, where: str, *, allow_other_tables: bool) -> None:
    """Raise ForeignDatabase where the file has other tables and no schema of perdure's; allow_other_tables: only if one of them
    has a name that the schema needs."""
    if not _applied(conn):
        others = conn.execute(SQL["objects_in_schema"]).fetchall()
        taken = names_of_ours(others) if others else []
        if taken or (others and not allow_other_tables):
            raise foreign_file(_tables(others), taken, where)


def _tables(things: Iterable[sqlite3.Row]) -> list[str]:
    return [thing["name"] for thing in things if thing["kind"] in ("table", "view")]


def check_fits(conn: sqlite3.Connection, where: str) -> None:
    """Raise unless the database has exactly the schema that this perdure ships; see `protocol.SchemaStore.check_schema`."""
    check_not_foreign(conn, where, allow_other_tables=False)
    applied = _applied(conn)
    check_schema_version(max(applied, default=0), len(_MIGRATIONS), where)
    _check_unchanged(applied, where)


def _statements(script: str) -> Iterator[str]:
    """Split a script; sqlite3's own executescript would commit our transaction first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


class SqliteSchema:
    """See `protocol.SchemaStore`."""

    def __init__(self, engine: Engine, folders: BlobFolders) -> None:
        self._engine = engine
        self._folders = folders
        self._place = engine.name

    async def schema_status(self) -> SchemaStatus:
        """See `protocol.SchemaStore.schema_status`."""

        def read(conn: sqlite3.Connection) -> SchemaStatus:
            check_not_foreign(conn, self._place, allow_other_tables=True)
            applied = _applied(conn)
            shipped = [
                dataclasses.replace(m, applied_at=applied[m.number].applied_at) if m.number in applied else m
                for m in _MIGRATIONS
            ]
            newer = [m for number, m in applied.items() if number > len(_MIGRATIONS)]
            server = f"SQLite {conn.execute(SQL['server_version']).fetchone()['version']}"
            return SchemaStatus(max(applied, default=0), len(_MIGRATIONS), server, (*shipped, *newer))

        return await self._engine.read(read)

    async def migrate(self, *, allow_other_tables: bool = True) -> list[Migration]:
        """See `protocol.SchemaStore.migrate`."""
        # Looking takes no lock: the caller itself may be writing to the file.
        applied = await self._engine.read(_applied)
        if max(applied, default=0) == len(_MIGRATIONS):
            _check_unchanged(applied, self._place)
            return []

        def once(conn: sqlite3.Connection, now: int) -> Migration | None:
            check_not_foreign(conn, self._place, allow_other_tables=allow_other_tables)
            return self._migrate_once(conn, now)

        done: list[Migration] = []
        while (migration := await self._engine.write(once, NOTHING)) is not None:
            done.append(migration)
        return done

    def _migrate_once(self, conn: sqlite3.Connection, now: int) -> Migration | None:
        """Apply the next migration, if there is one; the writer's lock admits one process at a time."""
        applied = _applied(conn)
        current = max(applied, default=0)
        if current > len(_MIGRATIONS):
            check_schema_version(current, len(_MIGRATIONS), self._place)
        _check_unchanged(applied, self._place)
        if current == len(_MIGRATIONS):
            return None
        migration = _MIGRATIONS[current]
        try:
            # The writer takes rows for changes: of tables that were made, it would not know that there is something to undo.
            with savepoint(conn):
                conn.execute(SQL["create_migrations"])
                for statement in _statements(migration.sql):
                    conn.execute(statement)
                record = {"number": migration.number, "name": migration.name, "checksum": migration.checksum}
                conn.execute(SQL["record_migration"], {**record, "now": now})
        except sqlite3.OperationalError as error:
            raise StoreError(
                f"migration {migration.number} ({migration.name}) of {self._place} failed: {error}",
                hint="if a table of yours has a name that perdure needs, rename it or use another file",
            ) from error
        return dataclasses.replace(migration, applied_at=CODEC.time(now))

    async def check_schema(self) -> None:
        """See `protocol.SchemaStore.check_schema`."""
        await self._engine.read(lambda conn: check_fits(conn, self._place))

    async def other_tables(self) -> list[str]:
        """See `protocol.SchemaStore.other_tables`."""

        def read(conn: sqlite3.Connection) -> list[str]:
            things = conn.execute(SQL["objects_in_schema"]).fetchall()
            ours = set(names_of_ours(things))
            return [name for name in _tables(things) if name not in ours]

        return await self._engine.read(read)

    async def backup(self, file: str, *, overwrite: bool) -> int:
        """See `protocol.SchemaStore.backup`."""
        source = self._engine.path
        if source is None:
            raise InvalidInput("a database in memory ends with its process: it has no backup")
        try:
            return await asyncio.to_thread(back_up, source, file, self._folders, overwrite=overwrite)
        except sqlite3.Error as error:
            raise translated(error, source) from error

    async def kinds(self) -> list[str]:
        """See `protocol.SchemaStore.kinds`."""
        return [row["kind"] for row in await self._engine.rows("list_kinds")]
