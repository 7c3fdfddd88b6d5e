"""Giving the signals of an agent to its jobs, under the lock of the agent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import UUID

from perdure.model.effects import bind_signals
from perdure.model.events import NewEvent
from perdure.model.jobs import Lease
from perdure.model.signals import (
    MOST_BOUND,
    AgentSignal,
    NewAgentSignal,
    TakenSignals,
    taken_note,
    taken_of,
    taken_together,
)
from perdure.store.errors import agent_not_found, agent_paused, check_same_agent_signal, lease_lost
from perdure.store.postgres.agents.locked_agent import lock_agent
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.locked_job import LockedJob, lock_job
from perdure.store.postgres.leases.effects import run_effects
from perdure.store.postgres.leases.record import Entry, write_entries
from perdure.store.rows import Row, agent_signal_of, signal_note, signal_of


async def send_to_agent(tx: Transaction, tenant_id: str, new: NewAgentSignal) -> AgentSignal:
    """See `protocol.SignalStore.send_agent_signal`."""
    agent = await lock_agent(tx, tenant_id, new.agent_id)
    if agent is None:
        raise agent_not_found(new.agent_id)
    known = {"tenant_id": tenant_id, "agent_id": agent.id, "id": new.id, "caller_id": new.caller_id}
    before = await tx.row("find_agent_signal", **known)
    if before is not None:
        return check_same_agent_signal(agent_signal_of(before, CODEC), new)
    if agent.paused_at is not None:
        raise agent_paused(agent)
    await tx.rows("insert_agent_signal", **(new._asdict() | {"tenant_id": tenant_id}))
    await answer_waits(tx, tenant_id, agent.id)
    row = await tx.row("find_agent_signal", **known)
    assert row is not None  # just inserted
    return agent_signal_of(row, CODEC)


async def answer_waits(tx: Transaction, tenant_id: str, agent_id: str) -> int:
    """Give the pending signals of an agent, which is locked, to the open waits for them of its jobs; return how many."""
    place = {"tenant_id": tenant_id, "agent_id": agent_id}
    ids = sorted({row["job_id"] for row in await tx.rows("agent_signal_waits", **place)})
    if not ids:
        return 0
    jobs = {id: await lock_job(tx, id, tenant_id) for id in ids}
    given = 0
    for wait in await tx.rows("agent_signal_waits", **place):
        if wait["job_id"] not in jobs:
            continue  # it was opened meanwhile: its own look follows
        for row in await tx.rows("pending_agent_signals", **place, key=wait["subject_id"], limit=1):
            jobs[wait["job_id"]] = await _give(tx, agent_id, jobs[wait["job_id"]], row["id"], row["key"])
            given += 1
    return given


async def give_all(tx: Transaction, tenant_id: str, agent_id: str, job: LockedJob) -> LockedJob:
    """Give a job what is pending for its agent, which is locked. Returns the job as it is locked then."""
    for row in await _pending(tx, tenant_id, agent_id):
        job = await _give(tx, agent_id, job, row["id"], row["key"])
    return job


async def give_to_new(tx: Transaction, tenant_id: str, agent_id: str, job_id: UUID) -> None:
    """Give a job that this transaction has stored what is pending for its agent, which is locked."""
    rows = await _pending(tx, tenant_id, agent_id)
    if not rows:
        return
    job = await lock_job(tx, job_id, tenant_id)
    for row in rows:
        job = await _give(tx, agent_id, job, row["id"], row["key"], at_start=True)


async def take_signals(
    tx: Transaction, tenant_id: str, lease: Lease, agent_id: str | None, key: str, event_id: str
) -> TakenSignals:
    """See `protocol.SignalStore.take_signals`."""
    agent = None if agent_id is None else await lock_agent(tx, tenant_id, agent_id)
    job = await lock_job(tx, lease.job_id, tenant_id)
    if not job.held_by(lease, tenant_id):
        raise lease_lost(lease)
    before = await tx.row("taken_signals", job_id=job.id, event_id=event_id)
    if before is not None:
        return taken_of(json.loads(before["payload"]))  # the answer of the first time was lost
    if agent is not None:
        await give_all(tx, tenant_id, agent.id, job)
    rows = await tx.rows("list_signals", job_id=job.id, tenant_id=tenant_id, pending=True, limit=MOST_BOUND + 1)
    taken = taken_together([signal_of(row, CODEC) for row in rows])
    if taken.signals:
        await tx.rows("take_signals", ids=[signal.id for signal in taken.signals])
    event = NewEvent("signals_taken", taken_note(key, taken), event_id)
    [result] = await write_entries(tx.rows, [Entry(tenant_id, lease, [event], [])])
    if isinstance(result, Exception):
        raise result
    return taken


async def _pending(tx: Transaction, tenant_id: str, agent_id: str) -> Sequence[Row]:
    return await tx.rows("pending_agent_signals", tenant_id=tenant_id, agent_id=agent_id, key=None, limit=MOST_BOUND)


async def _give(
    tx: Transaction, agent_id: str, job: LockedJob, id: UUID, key: str, *, at_start: bool = False
) -> LockedJob:
    await tx.rows("give_agent_signal", id=id, job_id=job.id)
    await tx.rows("keep_agent_signal", id=id)
    await run_effects(tx.rows, ((job.id, effect) for effect in bind_signals(key)))
    row = await tx.row("get_signal", id=id)
    assert row is not None  # just inserted
    note = signal_note(signal_of(row, CODEC), agent_id=agent_id, at_start=at_start)
    version = await job.append(tx, "signal_received", note)
    return LockedJob(job.id, job.status, version, job.claim)
