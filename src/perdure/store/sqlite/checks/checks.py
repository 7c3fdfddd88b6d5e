"""Whether what is stored can be so: reading it page by page in one snapshot each, and repairs in the writer's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from perdure.model.errors import PerdureError, StoreUnreachable
from perdure.store.fsck.rules import PARTS, Case, Fault
from perdure.store.fsck.runner import Examined, FsckRunner, IdPage, RepairFailed, examine, first_repair, prune_left
from perdure.store.rows import Row
from perdure.store.sqlite.engine.base import SQL, Base
from perdure.store.sqlite.engine.database import CODEC, micros
from perdure.store.sqlite.engine.writer import NEWS, NOTHING, WORK
from perdure.store.sqlite.schema.schema_check import faults_of_the_schema


class Checking(FsckRunner, Base):
    """See `fsck.CheckStore`."""

    async def _schema_faults(self) -> list[Fault]:
        def read(conn: sqlite3.Connection) -> list[Fault]:
            found = list(faults_of_the_schema(conn))
            if not any(fault.text == "table prune_batch is gone" for fault in found):
                marks = conn.execute(SQL["check_prune_batch"]).fetchone()["n"]
                found += [prune_left(marks)] if marks else []
            return found

        return await self._read(read)

    async def _repair_schema(self) -> None:
        await self._write(lambda conn, _: conn.execute(SQL["drop_prune_marks"]), NOTHING)

    def _key_of(self, id: UUID) -> str:
        return str(id)

    async def _look(self, after: str | None, limit: int) -> IdPage:
        def read(conn: sqlite3.Connection) -> IdPage:
            ids = [row["job_id"] for row in conn.execute(SQL["check_ids"], {"after": after or "", "limit": limit})]
            jobs = 0
            doubtful: list[Examined] = []
            for id in ids:
                case = _case(conn, id, self.tenant_id)
                if case is None:
                    continue
                jobs += case.job is not None
                judged = examine(case)
                if judged.faults:
                    doubtful.append(judged)
            return IdPage(jobs, doubtful, ids[-1] if len(ids) == limit else None)

        return await self._read(read)

    async def _look_again(self, keys: Sequence[str]) -> list[Examined]:
        def read(conn: sqlite3.Connection) -> list[Examined]:
            cases = (_case(conn, key, self.tenant_id) for key in sorted(keys))
            return [examine(case) for case in cases if case is not None]

        return await self._read(read)

    async def _repair_one(self, key: str, given_up: Collection[str]) -> Fault | None:
        tried: list[Fault] = []

        def faults(conn: sqlite3.Connection) -> Sequence[Fault]:
            case = _case(conn, key, self.tenant_id)
            return () if case is None else examine(case).faults

        def one(conn: sqlite3.Connection, _: int) -> Fault | None:
            chosen = first_repair(faults(conn), given_up)
            if chosen is None:
                return None
            fault, repair = chosen
            tried.append(fault)
            conn.execute(SQL[repair.statement], [_spelled(value) for value in repair.values.values()])
            if any((left.code, left.text) == (fault.code, fault.text) for left in faults(conn)):
                raise RepairFailed(fault)
            return fault

        try:
            return await self._write(one, WORK | NEWS)
        except StoreUnreachable:
            raise
        except PerdureError as error:
            raise RepairFailed(tried[-1] if tried else None, error.message) from error


def _case(conn: sqlite3.Connection, key: str, tenant: str) -> Case | None:
    """Everything about one id; None for a job of another tenant."""
    job = conn.execute(SQL["check_jobs"], (key,)).fetchone()
    if job is not None and job["tenant_id"] != tenant:
        return None
    now = CODEC.time(conn.execute(SQL["db_now"]).fetchone()["now"])
    case = Case(key, now, CODEC, cast("Row | None", job))
    for part in PARTS:
        for row in conn.execute(SQL[f"check_{part}"], (key,)):
            case.add(part, row, tenant)
    for event in conn.execute(SQL["check_events"], (key,)):
        case.log.read(event)
    return case


def _spelled(value: Any) -> Any:
    match value:
        case datetime():
            return micros(value)
        case UUID():
            return str(value)
        case _:
            return value
