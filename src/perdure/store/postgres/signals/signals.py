"""The signals to jobs and agents of one tenant."""

from __future__ import annotations

from uuid import UUID

from perdure.model.effects import bind_signals
from perdure.model.jobs import Lease, Page
from perdure.model.signals import AgentSignal, NewAgentSignal, NewSignal, Signal, TakenSignals
from perdure.model.states import Status
from perdure.store.errors import check_same_signal, parse_cursor, signal_too_late
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.engine import Engine
from perdure.store.postgres.engine.locked_job import lock_job
from perdure.store.postgres.leases.effects import run_effects
from perdure.store.postgres.signals.agent_signals import send_to_agent, take_signals
from perdure.store.rows import agent_signal_of, signal_note, signal_of


class PostgresSignals:
    """See `protocol.SignalStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._notifier = engine.notifier
        self._tenant_id = tenant_id

    async def send_signal(self, signal: NewSignal) -> Signal:
        """See `protocol.SignalStore.send_signal`."""
        sent = await self._database.transact(lambda tx: _send(tx, self._tenant_id, signal))
        self._notifier.notify(self._tenant_id, "work", "news")
        return sent

    async def bound_signal(self, job_id: UUID, wait_key: str) -> Signal | None:
        """See `protocol.SignalStore.bound_signal`."""
        row = await self._database.row("bound_signal", job_id=job_id, wait_key=wait_key, tenant_id=self._tenant_id)
        return None if row is None else signal_of(row, CODEC)

    async def list_signals(self, job_id: UUID, *, pending: bool = False, limit: int = 1000) -> list[Signal]:
        """See `protocol.SignalStore.list_signals`."""
        rows = await self._database.rows(
            "list_signals", job_id=job_id, tenant_id=self._tenant_id, pending=pending, limit=limit
        )
        return [signal_of(row, CODEC) for row in rows]

    async def take_signals(self, lease: Lease, agent_id: str | None, key: str, event_id: str) -> TakenSignals:
        """See `protocol.SignalStore.take_signals`."""
        taken = await self._database.transact(
            lambda tx: take_signals(tx, self._tenant_id, lease, agent_id, key, event_id)
        )
        self._notifier.notify(self._tenant_id, "news")
        return taken

    async def send_agent_signal(self, signal: NewAgentSignal) -> AgentSignal:
        """See `protocol.SignalStore.send_agent_signal`."""
        sent = await self._database.transact(lambda tx: send_to_agent(tx, self._tenant_id, signal))
        self._notifier.notify(self._tenant_id, "work", "news")
        return sent

    async def list_agent_signals(
        self, agent_id: str, *, pending: bool = False, limit: int = 50, cursor: str | None = None
    ) -> Page[AgentSignal]:
        """See `protocol.SignalStore.list_agent_signals`."""
        rows = await self._database.rows(
            "list_agent_signals",
            tenant_id=self._tenant_id,
            agent_id=agent_id,
            before=parse_cursor(cursor),
            pending=pending,
            limit=limit + 1,
        )
        items = tuple(agent_signal_of(row, CODEC) for row in rows[:limit])
        return Page(items, str(items[-1].id) if len(rows) > limit else None)


async def _send(tx: Transaction, tenant_id: str, new: NewSignal) -> Signal:
    # A transaction whose answer was lost is run again: then the signal is found by its own id.
    job = await lock_job(tx, new.job_id, tenant_id)
    before = await tx.row("find_signal", job_id=job.id, id=new.id, caller_id=new.caller_id)
    if before is not None:
        return check_same_signal(signal_of(before, CODEC), new)
    if job.status.terminal:
        raise signal_too_late(job.id, job.status)
    await tx.rows("insert_signal", **(new._asdict() | {"tenant_id": tenant_id}))
    await run_effects(tx.rows, ((job.id, effect) for effect in bind_signals(new.key)))
    row = await tx.row("get_signal", id=new.id)
    assert row is not None  # just inserted
    signal = signal_of(row, CODEC)
    await job.append(tx, "signal_received", signal_note(signal, at_start=job.status is Status.PENDING))
    return signal
