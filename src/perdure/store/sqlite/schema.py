"""The schema and the database itself."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime

from perdure.model.errors import MigrationChanged, StoreError
from perdure.model.states import Status
from perdure.store.protocol import Migration, SchemaStatus
from perdure.store.refusals import check_schema_version
from perdure.store.sqlfiles import load_migrations
from perdure.store.sqlite.base import SQL, Base
from perdure.store.sqlite.database import SPELLING, span
from perdure.store.sqlite.writer import NOTHING

_MIGRATIONS = load_migrations("perdure.store.sqlite")


def _applied(conn: sqlite3.Connection) -> dict[int, Migration]:
    if conn.execute(SQL["has_migrations"]).fetchone() is None:
        return {}
    rows = conn.execute(SQL["applied_migrations"])
    return {
        r["number"]: Migration(r["number"], r["name"], r["checksum"], "", SPELLING.time(r["applied_at"])) for r in rows
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


class Schema(Base):
    """See `protocol.SchemaStore`."""

    @property
    def _place(self) -> str:
        return self._path or "the database in memory"

    async def schema_status(self) -> SchemaStatus:
        """See `protocol.SchemaStore.schema_status`."""

        def read(conn: sqlite3.Connection) -> SchemaStatus:
            applied = _applied(conn)
            shipped = [
                dataclasses.replace(m, applied_at=applied[m.number].applied_at) if m.number in applied else m
                for m in _MIGRATIONS
            ]
            newer = [m for number, m in applied.items() if number > len(_MIGRATIONS)]
            server = f"SQLite {conn.execute(SQL['server_version']).fetchone()['version']}"
            return SchemaStatus(max(applied, default=0), len(_MIGRATIONS), server, (*shipped, *newer))

        return await self._read(read)

    async def migrate(self) -> list[Migration]:
        """See `protocol.SchemaStore.migrate`."""
        done: list[Migration] = []
        while (migration := await self._write(self._migrate_once, NOTHING)) is not None:
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
        conn.execute(SQL["create_migrations"])
        try:
            for statement in _statements(migration.sql):
                conn.execute(statement)
        except sqlite3.OperationalError as error:
            raise StoreError(
                f"migration {migration.number} ({migration.name}) of {self._place} failed: {error}",
                hint="perdure wants a database file for itself",
            ) from error
        conn.execute(SQL["record_migration"], (migration.number, migration.name, migration.checksum, now))
        return dataclasses.replace(migration, applied_at=SPELLING.time(now))

    async def check_schema(self) -> None:
        """See `protocol.SchemaStore.check_schema`."""
        applied = await self._read(_applied)
        check_schema_version(max(applied, default=0), len(_MIGRATIONS), self._place)
        _check_unchanged(applied, self._place)

    async def now(self) -> datetime:
        """See `protocol.SchemaStore.now`."""
        row = await self._row("db_now")
        assert row is not None
        return SPELLING.time(row["now"])

    async def prune(
        self, *, older_than: float, statuses: Sequence[Status], limit: int = 500, dry_run: bool = False
    ) -> int:
        """See `protocol.SchemaStore.prune`."""

        def one(conn: sqlite3.Connection, now: int) -> int:
            where = {
                "tenant": self.tenant,
                "statuses": json.dumps([status for status in statuses if status.terminal]),
                "before": now - span(older_than),
                "limit": limit,
            }
            if dry_run:
                count: int = conn.execute(SQL["prune_count"], where).fetchone()["n"]
                return count
            conn.execute(SQL["prune_done"])  # somebody may have written there by hand
            doomed = conn.execute(SQL["prune_pick"], where).rowcount
            if doomed:
                for part in ("events", "runs", "state", "approvals", "failures", "jobs", "done"):
                    conn.execute(SQL[f"prune_{part}"])
            return doomed

        return await self._write(one, NOTHING)
