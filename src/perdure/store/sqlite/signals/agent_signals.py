"""Giving the signals of an agent to its jobs."""

from __future__ import annotations

import sqlite3
from typing import cast

from perdure.model.effects import bind_signals
from perdure.model.signals import MOST_BOUND, AgentSignal, NewAgentSignal
from perdure.store.errors import agent_not_found, agent_paused, check_same_agent_signal
from perdure.store.rows import Row, agent_signal_of, signal_note, signal_of
from perdure.store.sqlite.agents.locked_agent import lock_agent
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.locked_job import LockedJob
from perdure.store.sqlite.engine.statements import SQL


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
