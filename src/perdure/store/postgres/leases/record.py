"""The holder's durable writes: events, state and waits, sharing commits with those of other jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from perdure.model.events import NewEvent
from perdure.model.jobs import Lease, StatePatch, Wait
from perdure.store.errors import lease_lost
from perdure.store.group_commit.batcher import Batcher
from perdure.store.group_commit.limits import text_of_record
from perdure.store.postgres.engine.hot_writer import Base, HotWriter, alike
from perdure.store.postgres.engine.transactions import Tx
from perdure.store.rows import Row

HOT_STATEMENTS = (
    "append_many",
    "append_one",
    "advance_heads",
    "insert_events",
    "patch_state",
    "open_wait",
    "close_waits",
    "find_event",
)

Run: TypeAlias = "Callable[..., Awaitable[list[Row]]]"
"""Runs a named statement with arguments, in somebody's transaction."""

in_lock_order = attrgetter("lease.job_id.int")


class Entry(NamedTuple):
    """One call of `record`."""

    lease: Lease
    events: Sequence[NewEvent]
    state: StatePatch | None
    open_waits: Sequence[Wait]
    close_waits: Sequence[str]


async def write_entries(run: Run, entries: Sequence[Entry], tenant: str) -> list[int | Exception]:
    """Write all entries whose lease is live; the statements of one transaction."""
    ordered = sorted(entries, key=in_lock_order)
    leases = [entry.lease for entry in ordered]
    rows = await run(
        "advance_heads",
        [lease.job_id for lease in leases],
        [lease.attempt for lease in leases],
        [lease.worker_id for lease in leases],
        [len(entry.events) for entry in ordered],
        tenant,
    )
    heads: dict[UUID, int] = {row["job_id"]: row["version"] for row in rows}
    live = [entry for entry in ordered if entry.lease.job_id in heads]
    await _insert(run, "insert_events", [
        (e.lease.job_id, heads[e.lease.job_id] - len(e.events) + n, e.lease.attempt, x.event_id, x.type, x.payload)
        for e in live for n, x in enumerate(e.events, 1)
    ])  # fmt: skip
    await _insert(run, "patch_state", [
        (e.lease.job_id, e.state.checkpoint, e.state.progress, e.state.progress_text, e.state.tokens, e.state.cost)
        for e in live if e.state is not None
    ])  # fmt: skip
    await _insert(run, "close_waits", [(e.lease.job_id, key) for e in live for key in e.close_waits])
    await _insert(run, "open_wait", [
        (e.lease.job_id, wait.key, wait.kind, wait.subject_id, wait.until) for e in live for wait in e.open_waits
    ])  # fmt: skip
    return [heads.get(entry.lease.job_id) or lease_lost(entry.lease) for entry in entries]


async def _insert(run: Run, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        await run(name, *map(list, zip(*rows, strict=True)))


class EntryWriter(HotWriter[Entry, int]):
    """Entries of any shape: a transaction of set-based statements for all that arrived meanwhile."""

    async def write(self, items: Sequence[Entry]) -> Sequence[int | Exception]:
        """See `Writer`."""
        async with self._hot.transaction() as prepared:

            async def run(name: str, *arguments: Any) -> list[Row]:
                rows: list[Any] = await prepared[name].fetch(*arguments)
                return rows

            results = await write_entries(run, items, self._db.tenant)
        self._bell.ring("news")
        return results

    async def look(self, items: Sequence[Entry]) -> Sequence[int | Exception | None]:
        """See `Writer`. An entry without events is no loss to repeat: it sets progress."""
        await self._hot.restore()
        results: list[int | Exception | None] = []
        for entry in items:
            rows = (
                await self._hot.fetch("find_event", entry.lease.job_id, entry.events[-1].event_id)
                if entry.events
                else []
            )
            results.append(_recorded(rows))
        return results

    async def write_aside(self, item: Entry) -> int:
        """See `Writer`."""

        async def work(tx: Tx) -> int | Exception:
            if tx.again and item.events:
                found = _recorded(await tx.rows("find_event", item.lease.job_id, item.events[-1].event_id))
                if found:
                    return found
            return (await write_entries(tx.rows, [item], tx.tenant))[0]

        async with self._aside:
            result = await self._db.transact(work)
        self._bell.ring("news")
        if isinstance(result, Exception):
            raise result
        return result

    def subject(self, item: Entry) -> Hashable:
        """See `Writer`."""
        return item.lease.job_id.int

    def size(self, item: Entry) -> int:
        """See `Writer`."""
        return text_of_record(item.events, item.state)


class EventWriter(EntryWriter):
    """Entries of one event and nothing else, the common step: one statement."""

    async def write(self, items: Sequence[Entry]) -> Sequence[int | Exception]:
        """See `Writer`."""
        if len(items) == 1:
            return [await self._write_one(items[0])]
        ids: list[UUID] = []
        attempts: list[int] = []
        workers: list[str] = []
        event_ids: list[str] = []
        types: list[str] = []
        payloads: list[str] = []
        for entry in sorted(items, key=in_lock_order):
            lease, event = entry.lease, entry.events[0]
            ids.append(lease.job_id)
            attempts.append(lease.attempt)
            workers.append(lease.worker_id)
            event_ids.append(event.event_id)
            types.append(event.type)
            payloads.append(event.payload)
        rows = await self._hot.fetch(
            "append_many", ids, alike(attempts), alike(workers), event_ids, alike(types), payloads, self._db.tenant
        )
        self._bell.ring("news")
        written: dict[UUID, int] = {row["job_id"]: row["version"] for row in rows}
        return [written.get(entry.lease.job_id) or lease_lost(entry.lease) for entry in items]

    async def _write_one(self, item: Entry) -> int | Exception:
        lease, event = item.lease, item.events[0]
        rows = await self._hot.fetch("append_one", *lease, event.event_id, event.type, event.payload, self._db.tenant)
        self._bell.ring("news")
        return _recorded(rows) or lease_lost(lease)


def _recorded(rows: Sequence[Row]) -> int | None:
    return rows[0]["version"] if rows else None


class Recording(Base):
    """See `protocol.LeaseStore`."""

    _events: Batcher[Entry, int]
    _entries: Batcher[Entry, int]

    async def record(
        self,
        lease: Lease,
        events: Sequence[NewEvent],
        *,
        state: StatePatch | None = None,
        open_waits: Sequence[Wait] = (),
        close_waits: Sequence[str] = (),
    ) -> int:
        """See `protocol.LeaseStore.record`."""
        entry = Entry(lease, events, state, open_waits, close_waits)
        if len(events) == 1 and state is None and not open_waits and not close_waits:
            return await self._events.submit(entry)
        return await self._entries.submit(entry)
