"""Whether what is stored can be so: reading it page by page in one snapshot each, and repairs under locks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from perdure.model.errors import PerdureError
from perdure.store.blobs.contents import Contents
from perdure.store.errors import parse_cursor
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
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.driver_errors import out_of_reach
from perdure.store.postgres.engine.engine import Engine
from perdure.store.postgres.schema.schema import PostgresSchema
from perdure.store.postgres.schema.schema_check import faults_of_the_schema


class PostgresChecks(FsckRunner):
    """See `protocol.CheckStore`."""

    def __init__(self, engine: Engine, tenant_id: str, schema: PostgresSchema, contents: Contents) -> None:
        super().__init__(contents)
        self._database = engine.database
        self._notifier = engine.notifier
        self._tenant_id = tenant_id
        self._schema = schema

    async def check_schema(self) -> None:
        """See `protocol.SchemaStore.check_schema`."""
        await self._schema.check_schema()

    async def blocked_by(self) -> str | None:
        """See `protocol.CheckStore.blocked_by`."""
        return None

    async def _schema_faults(self) -> list[Fault]:
        async def work(tx: Transaction) -> list[Fault]:
            found = faults_of_the_schema(await tx.rows("schema_objects"))
            fire = await tx.row("triggers_fire")
            if fire is not None and not fire["fire"]:
                found.append(Fault("schema-off", "session_replication_role is 'replica' here: no trigger fires"))
            if not any(fault.text == "table prune_batch is gone" for fault in found):
                marks = await tx.row("check_prune_batch")
                if marks is not None and marks["n"]:
                    found.append(prune_left(marks["n"]))
            if not any(fault.code == "schema-lost" for fault in found):
                memory = await tx.row("check_memory", tenant_id=self._tenant_id)
                assert memory is not None
                found += memory_faults(memory["unindexed"], memory["sums"], self._tenant_id)
                counts = await tx.row("check_agents", tenant_id=self._tenant_id)
                assert counts is not None
                found += agent_faults(counts, self._tenant_id)
                signals = await tx.row("check_agent_signals", tenant_id=self._tenant_id)
                assert signals is not None
                found += agent_signal_faults(signals, self._tenant_id)
            return found

        return await self._database.transact(work, isolation="repeatable_read", readonly=True)

    async def _repair_whole(self, repairs: Sequence[Repair]) -> None:
        async def work(tx: Transaction) -> None:
            for repair in repairs:
                for statement in (*repair.first, repair.statement):
                    await tx.rows(statement, **repair.values)

        await self._database.transact(work)
        self._notifier.notify(self._tenant_id, "work", "news")

    def _key_of(self, id: UUID) -> UUID:
        return id

    async def _examine_page(self, after: str | None, limit: int) -> IdPage:
        start = parse_cursor(after)

        async def work(tx: Transaction) -> IdPage:
            await tx.rows("by_index")
            ids = [row["job_id"] for row in await tx.rows("check_ids", after=start, limit=limit)]
            jobs, examined = await _examined(tx, self._tenant_id, ids)
            return IdPage(jobs, [one for one in examined if one.faults], str(ids[-1]) if len(ids) == limit else None)

        return await self._database.transact(work, isolation="repeatable_read", readonly=True)

    async def _files(self, after: str | None, up_to: str | None, *, whole: bool) -> list[CheckedFile]:
        start, end = parse_cursor(after), parse_cursor(up_to)
        rows = await self._database.rows("check_blobs", tenant_id=self._tenant_id, after=start, up_to=end, whole=whole)
        return [checked_file(row, CODEC) for row in rows]

    async def _examine(self, keys: Sequence[UUID]) -> list[Examined]:
        async def work(tx: Transaction) -> list[Examined]:
            return (await _examined(tx, self._tenant_id, sorted(keys)))[1]

        return await self._database.transact(work, isolation="repeatable_read", readonly=True)

    async def _repair_one(self, key: UUID, given_up: Collection[str]) -> Fault | None:
        tried: list[Fault] = []

        async def work(tx: Transaction) -> Fault | None:
            tried.clear()
            await tx.rows("lock_claim", job_id=key)
            await tx.rows("lock_job", job_id=key, tenant_id=self._tenant_id)
            chosen = first_repair(await self._faults(tx, key), given_up)
            if chosen is None:
                return None
            fault, repair = chosen
            tried.append(fault)
            await tx.rows(repair.statement, **repair.values)
            if any((left.code, left.text) == (fault.code, fault.text) for left in await self._faults(tx, key)):
                raise RepairFailed(fault)
            return fault

        try:
            repaired = await self._database.transact(work, isolation="repeatable_read")
        except PerdureError as error:
            if out_of_reach(error):
                raise
            raise RepairFailed(tried[0] if tried else None, error.message) from error
        if repaired is not None:
            self._notifier.notify(self._tenant_id, "work", "news")
        return repaired

    async def _faults(self, tx: Transaction, id: UUID) -> Sequence[Fault]:
        return [fault for examined in (await _examined(tx, self._tenant_id, [id]))[1] for fault in examined.faults]


async def _examined(tx: Transaction, tenant_id: str, ids: Sequence[UUID]) -> tuple[int, list[Examined]]:
    """How many of these ids (sorted) are jobs of this tenant; and what is wrong with each, also with those that are no job."""
    if not ids:
        return 0, []
    cases = await _cases(tx, tenant_id, ids)
    jobs = sum(case.job is not None for case in cases.values())
    examined: list[Examined] = []
    reading: Case | None = None
    async for event in tx.stream("check_events", ids=list(cases), first=ids[0], last=ids[-1]):
        if reading is None or event["job_id"] != reading.key:
            if reading is not None:
                examined.append(examine(reading))
            reading = cases.pop(event["job_id"])
        reading.log.read(event)
    without_events = cases.values()
    examined += [examine(case) for case in ([reading, *without_events] if reading else without_events)]
    return jobs, sorted(examined, key=lambda one: UUID(str(one.key)).int)


async def _cases(tx: Transaction, tenant_id: str, ids: Sequence[UUID]) -> dict[UUID, Case]:
    """The rows of these ids but their events; jobs of other tenants are left out."""
    found = await tx.row("db_now")
    assert found is not None
    jobs = {row["job_id"]: row for row in await tx.rows("check_jobs", ids=ids)}
    keys = [id for id in ids if id not in jobs or jobs[id]["tenant_id"] == tenant_id]
    cases = {key: Case(key, found["now"], CODEC, jobs.get(key)) for key in keys}
    for part in PARTS:
        for row in await tx.rows(f"check_{part}", ids=keys):
            cases[row["job_id"]].add(part, row, tenant_id)
    return cases
