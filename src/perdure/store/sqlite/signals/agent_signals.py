"""Giving the signals of an agent to its jobs."""

from __future__ import annotations

import json
import sqlite3
from typing import cast

from perdure.model.effects import bind_signals
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
from perdure.store.rows import Row, agent_signal_of, signal_note, signal_of
from perdure.store.sqlite.agents.locked_agent import lock_agent
from perdure.store.sqlite.engine.codec import CODEC, json_array
from perdure.store.sqlite.engine.locked_job import LockedJob
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.leases.lease_check import held_claim


def send_to_agent(conn: sqlite3.Connection, now: int, tenant_id: str, new: NewAgentSignal) -> AgentSignal:
    """See `protocol.SignalStore.send_agent_signal`."""
    agent = lock_agent(conn, tenant_id, new.agent_id)
    if agent is None:
        raise agent_not_found(new.agent_id)
    values = new._asdict() | {"id": str(new.id), "tenant_id": tenant_id, "now": now}
    before = conn.execute(SQL["find_agent_signal"], values).fetchone()
    if before is not None:
        return check_same_agent_signal(agent_signal_of(cast("Row", before), CODEC), new)
    if agent.paused_at is not None:
        raise agent_paused(agent)
    conn.execute(SQL["insert_agent_signal"], values)
    answer_waits(conn, now, tenant_id, agent.id)
    return agent_signal_of(cast("Row", conn.execute(SQL["find_agent_signal"], values).fetchone()), CODEC)


def answer_waits(conn: sqlite3.Connection, now: int, tenant_id: str, agent_id: str) -> int:
    """Give the pending signals of an agent to the open waits for them of its jobs; return how many."""
    place = {"tenant_id": tenant_id, "agent_id": agent_id, "now": now}
    given = 0
    for wait in conn.execute(SQL["agent_signal_waits"], place).fetchall():
        row = conn.execute(SQL["pending_agent_signals"], {**place, "key": wait["subject_id"], "limit": 1}).fetchone()
        if row is not None:
            _give(conn, now, agent_id, LockedJob(conn, wait["job_id"], tenant_id), row)
            given += 1
    return given


def give_all(conn: sqlite3.Connection, now: int, tenant_id: str, agent_id: str, job_id: str, *, at_start: bool) -> None:
    """Give a job what is pending for its agent."""
    place = {"tenant_id": tenant_id, "agent_id": agent_id, "now": now, "key": None, "limit": MOST_BOUND}
    rows = conn.execute(SQL["pending_agent_signals"], place).fetchall()
    job = LockedJob(conn, job_id, tenant_id) if rows else None
    for row in rows:
        assert job is not None
        _give(conn, now, agent_id, job, row, at_start=at_start)


def take_signals(
    conn: sqlite3.Connection, now: int, tenant_id: str, lease: Lease, agent_id: str | None, key: str, event_id: str
) -> TakenSignals:
    """See `protocol.SignalStore.take_signals`."""
    if held_claim(conn, now, tenant_id, lease) is None:
        raise lease_lost(lease)
    job_id = str(lease.job_id)
    before = conn.execute(SQL["taken_signals"], {"job_id": job_id, "event_id": event_id}).fetchone()
    if before is not None:
        return taken_of(json.loads(before["payload"]))  # the answer of the first time was lost
    if agent_id is not None and lock_agent(conn, tenant_id, agent_id) is not None:
        give_all(conn, now, tenant_id, agent_id, job_id, at_start=False)
    place = {"job_id": job_id, "tenant_id": tenant_id, "pending": True, "limit": MOST_BOUND + 1}
    rows = conn.execute(SQL["list_signals"], place).fetchall()
    taken = taken_together([signal_of(cast("Row", row), CODEC) for row in rows])
    conn.execute(SQL["take_signals"], {"ids": json_array([str(s.id) for s in taken.signals]), "now": now})
    job = LockedJob(conn, job_id, tenant_id)
    job.write_event(conn, now, "signals_taken", taken_note(key, taken), event_id)
    conn.execute(SQL["advance_heads"], {"heads": json.dumps({job_id: job.head}), "now": now})
    return taken


def give_to_claimed(conn: sqlite3.Connection, now: int, tenant_id: str, ids: str) -> None:
    """Give jobs that are claimed for the first time what is pending for their agents. ids: JSON array."""
    for id, agent_id in conn.execute(SQL["first_claimed"], {"ids": ids, "now": now}).fetchall():
        give_all(conn, now, tenant_id, agent_id, id, at_start=True)


def _give(
    conn: sqlite3.Connection, now: int, agent_id: str, job: LockedJob, row: sqlite3.Row, *, at_start: bool = False
) -> None:
    values = {"id": row["id"], "job_id": job.id, "now": now}
    conn.execute(SQL["give_agent_signal"], values)
    conn.execute(SQL["keep_agent_signal"], values)
    for statement, fields in bind_signals(row["key"]):
        conn.execute(SQL[statement], {**fields, "job_id": job.id, "now": now})
    signal = signal_of(cast("Row", conn.execute(SQL["get_signal"], values).fetchone()), CODEC)
    job.write_event(conn, now, "signal_received", signal_note(signal, agent_id=agent_id, at_start=at_start))
