"""The holder's durable writes: events, state and waits, sharing commits with those of other jobs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from perdure.model.effects import LOCK_ORDER, Effect, spawns
from perdure.model.events import NewEvent
from perdure.model.jobs import Lease
from perdure.store.errors import lease_lost
from perdure.store.group_commit.limits import text_of_record
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.hot_connection import RunStatement
from perdure.store.postgres.engine.hot_writer import HotWriter, alike
from perdure.store.postgres.leases.effects import run_effects
from perdure.store.rows import Row

HOT_STATEMENTS = ("append_many", "append_one", "advance_heads", "insert_events", "find_event", *LOCK_ORDER)

in_lock_order = attrgetter("lease.job_id.int")


class Entry(NamedTuple):
    """One call of `record`."""

    tenant_id: str
    lease: Lease
    events: Sequence[NewEvent]
    effects: Sequence[Effect]


class Leased(Protocol):
    """A call of a job's holder."""

    @property
    def tenant_id(self) -> str: ...

    @property
    def lease(self) -> Lease: ...


async def advance_heads(run: RunStatement, calls: Sequence[Leased], events: Sequence[int]) -> dict[UUID, int]:
    """Lock the claims of these calls, which are sorted in lock order, and count so many events of each; return the versions
    of those whose lease is live."""
    leases = [call.lease for call in calls]
    rows = await run(
        "advance_heads",
        ids=[lease.job_id for lease in leases],
        tenant_ids=[call.tenant_id for call in calls],
        attempts=[lease.attempt for lease in leases],
        worker_ids=[lease.worker_id for lease in leases],
        counts=events,
    )
    return {row["job_id"]: row["version"] for row in rows}


async def write_entries(run: RunStatement, entries: Sequence[Entry]) -> list[int | Exception]:
    """Write all entries whose lease is live; the statements of one transaction."""
    ordered = sorted(entries, key=in_lock_order)
    heads = await advance_heads(run, ordered, [len(entry.events) for entry in ordered])
    live = [entry for entry in ordered if entry.lease.job_id in heads]
    if any(entry.events for entry in live):
        await run("insert_events", **_event_columns(live, heads))
    await run_effects(run, ((entry.lease.job_id, effect) for entry in live for effect in entry.effects))
    return [heads.get(entry.lease.job_id) or lease_lost(entry.lease) for entry in entries]


def _event_columns(entries: Sequence[Entry], heads: Mapping[UUID, int]) -> dict[str, Any]:
    """The values of `insert_events`; heads: the version of the last event of each."""
    rows = [
        (entry.lease.job_id, heads[entry.lease.job_id] - len(entry.events) + n, entry.lease.attempt, event)
        for entry in entries
        for n, event in enumerate(entry.events, 1)
    ]
    ids, versions, attempts, events = zip(*rows, strict=True)
    return {
        "ids": ids,
        "versions": versions,
        "attempts": attempts,
        "event_ids": [event.event_id for event in events],
        "types": [event.type for event in events],
        "payloads": [event.payload for event in events],
    }


class EntryWriter(HotWriter[Entry, int]):
    """Entries of any shape: a transaction of set-based statements for all that arrived meanwhile."""

    async def write(self, items: Sequence[Entry]) -> Sequence[int | Exception]:
        """See `Writer`."""
        async with self._hot.transaction() as run:
            results = await write_entries(run, items)
        self._notify(items)
        return results

    async def find_written(self, items: Sequence[Entry]) -> Sequence[int | Exception | None]:
        """See `Writer`. An entry without events may be repeated: it sets progress."""
        await self._hot.connect()
        return [await _find(self._hot.rows, entry) for entry in items]

    async def write_separately(self, item: Entry) -> int:
        """See `Writer`."""

        async def work(tx: Transaction) -> int | Exception:
            found = await _find(tx.rows, item) if tx.again else None
            return found or (await write_entries(tx.rows, [item]))[0]

        async with self._separate:
            result = await self._database.transact(work)
        self._notify([item])
        if isinstance(result, Exception):
            raise result
        return result

    def subject(self, item: Entry) -> Hashable:
        """See `Writer`."""
        return item.lease.job_id.int

    def size(self, item: Entry) -> int:
        """See `Writer`."""
        return text_of_record(item.events, item.effects)

    def _notify(self, items: Sequence[Entry]) -> None:
        for tenant_id in {item.tenant_id for item in items}:
            self._notifier.notify(tenant_id, "news")
        for tenant_id in {item.tenant_id for item in items if item.effects and spawns(item.effects)}:
            self._notifier.notify(tenant_id, "work")


class EventWriter(EntryWriter):
    """Entries of one event and nothing else, the common step: one statement."""

    async def write(self, items: Sequence[Entry]) -> Sequence[int | Exception]:
        """See `Writer`."""
        if len(items) == 1:
            return [await self._write_one(items[0])]
        tenant_ids: list[str] = []
        ids: list[UUID] = []
        attempts: list[int] = []
        worker_ids: list[str] = []
        event_ids: list[str] = []
        types: list[str] = []
        payloads: list[str] = []
        for entry in sorted(items, key=in_lock_order):
            lease, event = entry.lease, entry.events[0]
            tenant_ids.append(entry.tenant_id)
            ids.append(lease.job_id)
            attempts.append(lease.attempt)
            worker_ids.append(lease.worker_id)
            event_ids.append(event.event_id)
            types.append(event.type)
            payloads.append(event.payload)
        rows = await self._hot.rows(
            "append_many",
            ids=ids,
            tenant_ids=alike(tenant_ids),
            attempts=alike(attempts),
            worker_ids=alike(worker_ids),
            event_ids=event_ids,
            types=alike(types),
            payloads=payloads,
        )
        self._notify(items)
        written: dict[UUID, int] = {row["job_id"]: row["version"] for row in rows}
        return [written.get(entry.lease.job_id) or lease_lost(entry.lease) for entry in items]

    async def _write_one(self, item: Entry) -> int | Exception:
        lease, event = item.lease, item.events[0]
        rows = await self._hot.rows(
            "append_one",
            job_id=lease.job_id,
            tenant_id=item.tenant_id,
            attempt=lease.attempt,
            worker_id=lease.worker_id,
            event_id=event.event_id,
            type=event.type,
            payload=event.payload,
        )
        self._notify([item])
        return _version(rows) or lease_lost(lease)


async def _find(run: RunStatement, entry: Entry) -> int | None:
    """The version of the entry's last event if it was written."""
    if not entry.events:
        return None
    return _version(await run("find_event", job_id=entry.lease.job_id, event_id=entry.events[-1].event_id))


def _version(rows: Sequence[Row]) -> int | None:
    return rows[0]["version"] if rows else None
