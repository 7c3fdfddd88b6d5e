"""Binding the messages of an agent to the waits of its jobs, and replies to those who wait for them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from perdure.model.agents import AgentInstance
from perdure.model.mailbox import fitting_together
from perdure.model.messages import Message, asked_by, wanted
from perdure.store.agent_rows import message_note, message_of
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.locked_job import LockedJob
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.signals.agent_signals import give_all


def wake_waiting(conn: sqlite3.Connection, now: int, tenant_id: str, agent: AgentInstance) -> int:
    """Give the due messages of an agent to the jobs of it that wait for them; return how many were bound."""
    place = {"tenant_id": tenant_id, "agent_id": agent.id, "now": now}
    bound = 0
    for wait in conn.execute(SQL["agent_waits"], place).fetchall():
        channel, limit = wanted(wait["subject_id"])
        values = {
            **place,
            "channel": channel,
            "session_id": wait["session_id"],
            "default_session_id": agent.default_session_id,
            "limit": limit,
        }
        rows = conn.execute(SQL["messages_for_wait"], values).fetchall()
        messages = fitting_together([message_of(row, CODEC) for row in rows])
        if messages:
            _bind(conn, now, tenant_id, wait["job_id"], wait["key"], messages)
            give_all(conn, now, tenant_id, agent.id, wait["job_id"], at_start=False)
            bound += len(messages)
    return bound


def deliver_reply(conn: sqlite3.Connection, now: int, tenant_id: str, channel: str) -> int:
    """Give a reply to the job that waits for it; return how many were bound. One that is no longer waited for is marked."""
    place = {"tenant_id": tenant_id, "channel": channel, "asked": str(asked_by(channel)), "now": now}
    conn.execute(SQL["drop_deliveries"], {**place, "agent_id": channel})
    row = conn.execute(SQL["due_reply"], place).fetchone()
    if row is None:
        return 0
    wait = conn.execute(SQL["reply_wait"], place).fetchone()
    if wait is None:
        conn.execute(SQL["refuse_late"], {"id": row["id"]})
        return 0
    _bind(conn, now, tenant_id, wait["job_id"], wait["key"], [message_of(row, CODEC)])
    return 1


def _bind(
    conn: sqlite3.Connection, now: int, tenant_id: str, job_id: str, key: str, messages: Sequence[Message]
) -> None:
    job = LockedJob(conn, job_id, tenant_id)
    for message in messages:
        conn.execute(SQL["bind_messages"], {"id": str(message.id), "job_id": job_id, "key": key, "now": now})
        job.write_event(conn, now, "agent_message", message_note(message, key))
    conn.execute(SQL["answer_message_wait"], {"job_id": job_id, "key": key, "now": now})
