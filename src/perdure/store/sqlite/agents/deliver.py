"""Binding the due messages of an agent to jobs."""

from __future__ import annotations

import sqlite3
from typing import Any
from uuid import UUID

from perdure.model.agents import AgentInstance
from perdure.model.mailbox import (
    MOST_MESSAGES,
    Start,
    interrupt_note,
    job_for,
    job_ids,
    most_due,
    one_at_a_time,
    plan_delivery,
)
from perdure.model.messages import REPLY_PREFIX
from perdure.store.agent_rows import message_of
from perdure.store.errors import agent_busy
from perdure.store.sqlite.agents.locked_agent import lock_agent
from perdure.store.sqlite.agents.wake import deliver_reply, wake_waiting
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.jobs.control import cancel
from perdure.store.sqlite.jobs.enqueue import enqueue_all
from perdure.store.sqlite.signals.agent_signals import answer_waits, give_all


def deliver(conn: sqlite3.Connection, now: int, tenant_id: str, agent_id: str) -> int:
    """See `protocol.AgentStore.deliver`."""
    if agent_id.startswith(REPLY_PREFIX):
        return deliver_reply(conn, now, tenant_id, agent_id)
    agent = lock_agent(conn, tenant_id, agent_id)
    if agent is None or agent.paused_at is not None:
        conn.execute(SQL["drop_deliveries"], {"tenant_id": tenant_id, "agent_id": agent_id, "now": now})
        return 0  # resuming it writes the next row
    return deliver_to(conn, now, tenant_id, agent)


def deliver_to(conn: sqlite3.Connection, now: int, tenant_id: str, agent: AgentInstance) -> int:
    """`deliver` to an agent that is not paused."""
    place = {"tenant_id": tenant_id, "agent_id": agent.id, "now": now}
    conn.execute(SQL["drop_deliveries"], place)
    signals = answer_waits(conn, now, tenant_id, agent.id)
    conn.execute(SQL["expire_messages"], place)
    busy, rows = _due(conn, now, tenant_id, agent)
    woken = wake_waiting(conn, now, tenant_id, agent) if rows else 0
    if woken:
        busy, rows = _due(conn, now, tenant_id, agent)
    due = [message_of(row, CODEC) for row in rows[:MOST_MESSAGES]]
    plan = plan_delivery(agent, due, busy=busy)
    start_jobs(conn, now, tenant_id, agent, plan.starts)
    if plan.more or (plan.bound and len(rows) > MOST_MESSAGES):
        conn.execute(SQL["add_delivery"], place)
    return signals + woken + plan.bound


def _due(conn: sqlite3.Connection, now: int, tenant_id: str, agent: AgentInstance) -> tuple[bool, list[Any]]:
    """Whether the agent is busy, where that matters, and the first due messages: no more than it can take now."""
    place = {"tenant_id": tenant_id, "agent_id": agent.id, "now": now}
    busy = one_at_a_time(agent) and bool(conn.execute(SQL["agent_is_busy"], place).fetchone()["busy"])
    return busy, conn.execute(SQL["due_messages"], {**place, "limit": most_due(agent, busy=busy)}).fetchall()


def start_jobs(conn: sqlite3.Connection, now: int, tenant_id: str, agent: AgentInstance, starts: list[Start]) -> None:
    """Enqueue jobs, each with the messages that it consumes."""
    if not starts:
        return
    if agent.on_busy == "interrupt":
        for start in starts:
            _interrupt(conn, now, tenant_id, agent, start)
    enqueue_all(conn, now, tenant_id, [start.job for start in starts])
    pairs = job_ids(starts)
    rows = [{"id": str(id), "job_id": str(job_id), "now": now} for id, job_id in pairs.items()]
    conn.executemany(SQL["consume_messages"], rows)
    give_all(conn, now, tenant_id, agent.id, str(starts[0].job.id), at_start=True)


def start_for(conn: sqlite3.Connection, now: int, tenant_id: str, agent: AgentInstance, message_id: UUID) -> None:
    """Start a job for one message, whatever the intake of its agent."""
    row = conn.execute(SQL["get_message"], {"tenant_id": tenant_id, "id": str(message_id)}).fetchone()
    message = message_of(row, CODEC)
    place = {"tenant_id": tenant_id, "agent_id": agent.id}
    if agent.on_busy == "reject" and conn.execute(SQL["agent_is_busy"], place).fetchone()["busy"]:
        raise agent_busy(agent.id)
    start_jobs(conn, now, tenant_id, agent, [Start(job_for(agent, (message,)), (message,))])


def _interrupt(conn: sqlite3.Connection, now: int, tenant_id: str, agent: AgentInstance, start: Start) -> None:
    """Cancel the jobs whose place one takes: those of its session that are not suspended."""
    place = {"tenant_id": tenant_id, "agent_id": agent.id, "session_id": start.job.session_id}
    for row in conn.execute(SQL["jobs_to_interrupt"], place).fetchall():
        cancel(conn, now, tenant_id, UUID(row["job_id"]), interrupt_note(start), force=False)
