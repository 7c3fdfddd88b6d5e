"""Fsck: reading page by page, in one snapshot each, and repairs in the writer's transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Collection, Sequence
from typing import cast
from uuid import UUID

from perdure.model.errors import PerdureError, StoreUnreachable
from perdure.store.blobs.contents import Contents
from perdure.store.fsck.case import PARTS, Case, Fault, Repair
from perdure.store.fsck.contents import CheckedFile, checked_file
from perdure.store.fsck.runner import (
    Examined,
    FsckRunner,
    IdPage,
    RepairFailed,
    agent_faults,
    agent_signal_faults,
    examine,
    first_repair,
    memory_faults,
    prune_left,
)
from perdure.store.rows import Row
from perdure.store.sqlite.engine.batch import NEWS, WORK
from perdure.store.sqlite.engine.codec import CODEC, stored
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.file_lock import held_by
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.schema.schema import SqliteSchema
from perdure.store.sqlite.schema.schema_check import faults_of_the_schema


class SqliteChecks(FsckRunner):
    """See `protocol.CheckStore`."""

    def __init__(self, engine: Engine, tenant_id: str, schema: SqliteSchema, contents: Contents) -> None:
        super().__init__(contents)
        self._engine = engine
        self._tenant_id = tenant_id
        self._schema = schema

    async def check_schema(self) -> None:
        """See `protocol.SchemaStore.check_schema`."""
        await self._schema.check_schema()

    async def blocked_by(self) -> str | None:
        """See `protocol.CheckStore.blocked_by`."""
        return None if self._engine.path is None else await asyncio.to_thread(held_by, self._engine.path)

    async def _schema_faults(self) -> list[Fault]:
        def read(conn: sqlite3.Connection) -> list[Fault]:
            found = list(faults_of_the_schema(conn))
            if not any(fault.text == "table prune_batch is gone" for fault in found):
                marks = conn.execute(SQL["check_prune_batch"]).fetchone()["n"]
                found += [prune_left(marks)] if marks else []
            if not any(fault.code == "schema-lost" for fault in found):
                memory = conn.execute(SQL["check_memory"], {"tenant_id": self._tenant_id}).fetchone()
                found += memory_faults(memory["unindexed"], memory["sums"], self._tenant_id)
                counts = conn.execute(SQL["check_agents"], {"tenant_id": self._tenant_id}).fetchone()
                found += agent_faults(counts, self._tenant_id)
                signals = conn.execute(SQL["check_agent_signals"], {"tenant_id": self._tenant_id}).fetchone()
                found += agent_signal_faults(signals, self._tenant_id)
            return found

        return await self._engine.read(read)

    async def _repair_whole(self, repairs: Sequence[Repair]) -> None:
        def make(conn: sqlite3.Connection, _: int) -> None:
            for repair in repairs:
                for statement in (*repair.first, repair.statement):
                    conn.execute(SQL[statement], dict(repair.values))

        await self._engine.write(make, WORK | NEWS)

    def _key_of(self, id: UUID) -> str:
        return str(id)

    async def _examine_page(self, after: str | None, limit: int) -> IdPage:
        def read(conn: sqlite3.Connection) -> IdPage:
            ids = [row["job_id"] for row in conn.execute(SQL["check_ids"], {"after": after or "", "limit": limit})]
            jobs = 0
            faulty: list[Examined] = []
            for id in ids:
                case = _case(conn, id, self._tenant_id)
                if case is None:
                    continue
                jobs += case.job is not None
                examined = examine(case)
                if examined.faults:
                    faulty.append(examined)
            return IdPage(jobs, faulty, ids[-1] if len(ids) == limit else None)

        return await self._engine.read(read)

    async def _files(self, after: str | None, up_to: str | None, *, whole: bool) -> list[CheckedFile]:
        rows = await self._engine.rows("check_blobs", tenant_id=self._tenant_id, after=after, up_to=up_to, whole=whole)
        return [checked_file(row, CODEC) for row in rows]

    async def _examine(self, keys: Sequence[str]) -> list[Examined]:
        def read(conn: sqlite3.Connection) -> list[Examined]:
            cases = (_case(conn, key, self._tenant_id) for key in sorted(keys))
            return [examine(case) for case in cases if case is not None]

        return await self._engine.read(read)

    async def _repair_one(self, key: str, given_up: Collection[str]) -> Fault | None:
        tried: list[Fault] = []

        def faults(conn: sqlite3.Connection) -> Sequence[Fault]:
            case = _case(conn, key, self._tenant_id)
            return () if case is None else examine(case).faults

        def one(conn: sqlite3.Connection, _: int) -> Fault | None:
            chosen = first_repair(faults(conn), given_up)
            if chosen is None:
                return None
            fault, repair = chosen
            tried.append(fault)
            conn.execute(SQL[repair.statement], {name: stored(value) for name, value in repair.values.items()})
            if any((left.code, left.text) == (fault.code, fault.text) for left in faults(conn)):
                raise RepairFailed(fault)
            return fault

        try:
            return await self._engine.write(one, WORK | NEWS)
        except StoreUnreachable:
            raise
        except PerdureError as error:
            raise RepairFailed(tried[-1] if tried else None, error.message) from error


def _case(conn: sqlite3.Connection, key: str, tenant_id: str) -> Case | None:
    """Everything about one id; None for a job of another tenant."""
    job = conn.execute(SQL["check_jobs"], {"job_id": key}).fetchone()
    if job is not None and job["tenant_id"] != tenant_id:
        return None
    now = CODEC.time(conn.execute(SQL["db_now"]).fetchone()["now"])
    case = Case(key, now, CODEC, cast("Row | None", job))
    for part in PARTS:
        for row in conn.execute(SQL[f"check_{part}"], {"job_id": key}):
            case.add(part, row, tenant_id)
    for event in conn.execute(SQL["check_events"], {"job_id": key}):
        case.log.read(event)
    return case
