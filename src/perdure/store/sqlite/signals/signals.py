"""The signals to jobs and agents of one tenant."""

from __future__ import annotations

import sqlite3
from typing import cast
from uuid import UUID

from perdure.model.effects import bind_signals
from perdure.model.jobs import Lease, Page
from perdure.model.signals import AgentSignal, NewAgentSignal, NewSignal, Signal, TakenSignals
from perdure.model.states import Status
from perdure.store.errors import check_same_signal, parse_cursor, signal_too_late
from perdure.store.rows import Row, agent_signal_of, signal_note, signal_of
from perdure.store.sqlite.engine.batch import NEWS, WORK
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.locked_job import LockedJob
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.signals.agent_signals import send_to_agent, take_signals


class SqliteSignals:
    """See `protocol.SignalStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def send_signal(self, signal: NewSignal) -> Signal:
        """See `protocol.SignalStore.send_signal`."""
        return await self._engine.write(lambda conn, now: _send(conn, now, self._tenant_id, signal), WORK | NEWS)

    async def bound_signal(self, job_id: UUID, wait_key: str) -> Signal | None:
        """See `protocol.SignalStore.bound_signal`."""
        row = await self._engine.row("bound_signal", job_id=str(job_id), wait_key=wait_key, tenant_id=self._tenant_id)
        return None if row is None else signal_of(row, CODEC)

    async def list_signals(self, job_id: UUID, *, pending: bool = False, limit: int = 1000) -> list[Signal]:
        """See `protocol.SignalStore.list_signals`."""
        rows = await self._engine.rows(
            "list_signals", job_id=str(job_id), tenant_id=self._tenant_id, pending=pending, limit=limit
        )
        return [signal_of(row, CODEC) for row in rows]

    async def take_signals(self, lease: Lease, agent_id: str | None, key: str, event_id: str) -> TakenSignals:
        """See `protocol.SignalStore.take_signals`."""
        return await self._engine.write(
            lambda conn, now: take_signals(conn, now, self._tenant_id, lease, agent_id, key, event_id), NEWS
        )

    async def send_agent_signal(self, signal: NewAgentSignal) -> AgentSignal:
        """See `protocol.SignalStore.send_agent_signal`."""
        return await self._engine.write(
            lambda conn, now: send_to_agent(conn, now, self._tenant_id, signal), WORK | NEWS
        )

    async def list_agent_signals(
        self, agent_id: str, *, pending: bool = False, limit: int = 50, cursor: str | None = None
    ) -> Page[AgentSignal]:
        """See `protocol.SignalStore.list_agent_signals`."""
        before = parse_cursor(cursor)
        rows = await self._engine.rows(
            "list_agent_signals",
            tenant_id=self._tenant_id,
            agent_id=agent_id,
            before=None if before is None else str(before),
            pending=pending,
            limit=limit + 1,
        )
        items = tuple(agent_signal_of(row, CODEC) for row in rows[:limit])
        return Page(items, str(items[-1].id) if len(rows) > limit else None)


def _send(conn: sqlite3.Connection, now: int, tenant_id: str, new: NewSignal) -> Signal:
    job = LockedJob(conn, new.job_id, tenant_id)
    values = new._asdict() | {"id": str(new.id), "job_id": job.id, "tenant_id": tenant_id, "now": now}
    before = conn.execute(SQL["find_signal"], values).fetchone()
    if before is not None:
        return check_same_signal(signal_of(cast("Row", before), CODEC), new)
    if job.status.terminal:
        raise signal_too_late(new.job_id, job.status)
    conn.execute(SQL["insert_signal"], values)
    for statement, row in bind_signals(new.key):
        conn.execute(SQL[statement], {**row, "job_id": job.id, "now": now})
    signal = signal_of(cast("Row", conn.execute(SQL["get_signal"], values).fetchone()), CODEC)
    job.write_event(conn, now, "signal_received", signal_note(signal, at_start=job.status is Status.PENDING))
    return signal
