"""What dashboards ask for, of one tenant."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from pathlib import Path

from perdure.model.figures import Decided, Figures
from perdure.model.retention import IndexSize, StoreSizes, TableSize, by_size
from perdure.store.rows import decided_of, figures_of
from perdure.store.sqlite.engine.codec import CODEC, micros
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL

COUNT_UP_TO = 100_000
"""Rows of a table that are counted for its size."""
DBSTAT_UP_TO = 256 * 1024 * 1024
"""Bytes of a file that is read through to tell its tables apart."""


class SqliteFigures:
    """See `protocol.FigureStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def snapshot(self) -> Figures:
        """See `protocol.FigureStore.snapshot`."""
        jobs = await self._engine.rows("live_jobs", tenant_id=self._tenant_id)
        [approvals] = await self._engine.rows("pending_approvals", tenant_id=self._tenant_id)
        return figures_of(jobs, approvals, CODEC)

    async def decided(self, since: datetime, *, limit: int = 1000) -> list[Decided]:
        """See `protocol.FigureStore.decided`."""
        rows = await self._engine.rows("decided_approvals", tenant_id=self._tenant_id, since=micros(since), limit=limit)
        return [decided_of(row, CODEC) for row in rows]

    async def sizes(self) -> StoreSizes:
        """See `protocol.FigureStore.sizes`."""
        path = self._engine.path
        wal_bytes = None if path is None else _file_size(path + "-wal")
        return await self._engine.read(lambda conn: _sizes(conn, wal_bytes))


def _sizes(conn: sqlite3.Connection, wal_bytes: int | None) -> StoreSizes:
    file = conn.execute(SQL["file_sizes"]).fetchone()
    bytes_of = _object_sizes(conn) if file["total"] <= DBSTAT_UP_TO else {}
    indexes: dict[str, list[IndexSize]] = {}
    for row in conn.execute(SQL["index_sizes"]):
        if row["name"] in bytes_of:
            indexes.setdefault(row["tbl_name"], []).append(IndexSize(row["name"], bytes_of[row["name"]]))
    tables = []
    for row in conn.execute(SQL["table_sizes"], {"bound": COUNT_UP_TO + 1}):
        name, rows = row["name"], min(row["rows"], COUNT_UP_TO)
        more = row["rows"] > COUNT_UP_TO
        of_it = tuple(sorted(indexes.get(name, ()), key=lambda i: -i.bytes))
        tables.append(TableSize(name, rows, not more, more, bytes=bytes_of.get(name), indexes=of_it))
    return StoreSizes(by_size(tables), file["total"], file["free"], wal_bytes)


def _object_sizes(conn: sqlite3.Connection) -> dict[str, int]:
    """Bytes by table and index; nothing where this SQLite was built without dbstat."""
    try:
        return {row["name"]: row["pgsize"] for row in conn.execute(SQL["object_sizes"])}
    except sqlite3.OperationalError:
        return {}


def _file_size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
