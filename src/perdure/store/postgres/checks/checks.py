"""Whether what is stored can be so: reading it page by page in one snapshot each, and repairs under locks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from perdure.model.errors import PerdureError
from perdure.store.errors import parse_cursor
from perdure.store.fsck.rules import PARTS, Case, Fault
from perdure.store.fsck.runner import Examined, FsckRunner, IdPage, RepairFailed, examine, first_repair, prune_left
from perdure.store.postgres.engine.codec import SPELLING
from perdure.store.postgres.engine.driver_errors import out_of_reach
from perdure.store.postgres.engine.hot_writer import Base
from perdure.store.postgres.engine.transactions import Tx
from perdure.store.postgres.schema.schema_check import faults_of_the_schema


class Checking(FsckRunner, Base):
    """See `fsck.CheckStore`."""

    async def _schema_faults(self) -> list[Fault]:
        async def work(tx: Tx) -> list[Fault]:
            found = faults_of_the_schema(await tx.rows("schema_objects"))
            fire = await tx.row("triggers_fire")
            if fire is not None and not fire["fire"]:
                found.append(Fault("schema-off", "session_replication_role is 'replica' here: no trigger fires"))
            if not any(fault.text == "table prune_batch is gone" for fault in found):
                marks = await tx.row("check_prune_batch")
                if marks is not None and marks["n"]:
                    found.append(prune_left(marks["n"]))
            return found

        return await self._db.transact(work, isolation="repeatable_read", readonly=True)

    async def _repair_schema(self) -> None:
        await self._db.rows("drop_prune_marks")

    def _key_of(self, id: UUID) -> UUID:
        return id

    async def _look(self, after: str | None, limit: int) -> IdPage:
        start = parse_cursor(after)

        async def work(tx: Tx) -> IdPage:
            await tx.rows("by_index")
            ids = [row["job_id"] for row in await tx.rows("check_ids", start, limit)]
            jobs, judged = await _judge(tx, ids)
            return IdPage(jobs, [one for one in judged if one.faults], str(ids[-1]) if len(ids) == limit else None)

        return await self._db.transact(work, isolation="repeatable_read", readonly=True)

    async def _look_again(self, keys: Sequence[UUID]) -> list[Examined]:
        async def work(tx: Tx) -> list[Examined]:
            return (await _judge(tx, sorted(keys)))[1]

        return await self._db.transact(work, isolation="repeatable_read", readonly=True)

    async def _repair_one(self, key: UUID, given_up: Collection[str]) -> Fault | None:
        tried: list[Fault] = []

        async def work(tx: Tx) -> Fault | None:
            tried.clear()
            await tx.rows("lock_claim", key)
            await tx.rows("lock_job", key, tx.tenant)
            chosen = first_repair(await _faults(tx, key), given_up)
            if chosen is None:
                return None
            fault, repair = chosen
            tried.append(fault)
            await tx.rows(repair.statement, *repair.values.values())
            if any((left.code, left.text) == (fault.code, fault.text) for left in await _faults(tx, key)):
                raise RepairFailed(fault)
            return fault

        try:
            repaired = await self._db.transact(work, isolation="repeatable_read")
        except PerdureError as error:
            if out_of_reach(error):
                raise
            raise RepairFailed(tried[0] if tried else None, error.message) from error
        if repaired is not None:
            self._bell.ring("work", "news")
        return repaired


async def _faults(tx: Tx, id: UUID) -> Sequence[Fault]:
    return [fault for judged in (await _judge(tx, [id]))[1] for fault in judged.faults]


async def _judge(tx: Tx, ids: Sequence[UUID]) -> tuple[int, list[Examined]]:
    """How many of these ids (sorted) are jobs of this tenant; and what is wrong with each, also with those that are no job."""
    if not ids:
        return 0, []
    cases = await _cases(tx, ids)
    jobs = sum(case.job is not None for case in cases.values())
    judged: list[Examined] = []
    reading: Case | None = None
    async for event in tx.stream("check_events", list(cases), ids[0], ids[-1]):
        if reading is None or event["job_id"] != reading.key:
            if reading is not None:
                judged.append(examine(reading))
            reading = cases.pop(event["job_id"])
        reading.log.read(event)
    without_events = cases.values()
    judged += [examine(case) for case in ([reading, *without_events] if reading else without_events)]
    return jobs, sorted(judged, key=lambda one: UUID(str(one.key)).int)


async def _cases(tx: Tx, ids: Sequence[UUID]) -> dict[UUID, Case]:
    """The rows of these ids but their events; jobs of other tenants are left out."""
    found = await tx.row("db_now")
    assert found is not None
    jobs = {row["job_id"]: row for row in await tx.rows("check_jobs", ids)}
    keys = [id for id in ids if id not in jobs or jobs[id]["tenant_id"] == tx.tenant]
    cases = {key: Case(key, found["now"], SPELLING, jobs.get(key)) for key in keys}
    for part in PARTS:
        for row in await tx.rows(f"check_{part}", keys):
            cases[row["job_id"]].add(part, row, tx.tenant)
    return cases
