"""Sending a message from outside of jobs: stored and, if it is due, delivered in one transaction."""

from __future__ import annotations

import sqlite3
from uuid import UUID

from perdure.model.ids import same_json
from perdure.model.messages import NewMessage, Sent
from perdure.store.errors import agent_busy, agent_not_found, agent_paused, message_conflict
from perdure.store.sqlite.agents.deliver import deliver_to, start_for
from perdure.store.sqlite.agents.locked_agent import lock_agent
from perdure.store.sqlite.engine.codec import stored
from perdure.store.sqlite.engine.statements import SQL


def send(
    conn: sqlite3.Connection, now: int, tenant_id: str, message: NewMessage, from_agent_id: str | None, *, start: bool
) -> Sent:
    """See `protocol.AgentStore.send`."""
    to = message.to_agent_id
    assert to is not None
    agent = lock_agent(conn, tenant_id, to)
    if agent is None:
        raise agent_not_found(to)
    values = {name: stored(value) for name, value in message._asdict().items()}
    values |= {"tenant_id": tenant_id, "from_agent_id": from_agent_id, "now": now}
    known = conn.execute(SQL["find_message"], values).fetchone()
    if known is None:
        if agent.paused_at is not None:
            raise agent_paused(agent)
        conn.execute(SQL["insert_message"], values)
        if start and not message.delay:
            start_for(conn, now, tenant_id, agent, message.id)
        elif message.delay or (not deliver_to(conn, now, tenant_id, agent) and agent.on_busy != "reject"):
            return Sent(message.id, created=True)
        known = conn.execute(SQL["find_message"], values).fetchone()
        if agent.on_busy == "reject" and not message.delay and known["consumed_by_job_id"] is None and known["open"]:
            raise agent_busy(to)
        return Sent(message.id, created=True, job_id=_uuid(known["consumed_by_job_id"]))
    id = UUID(known["id"])
    if id != message.id and not same_json(known["payload"], message.payload):
        raise message_conflict(message, id)
    if start and known["consumed_by_job_id"] is None and known["open"]:
        start_for(conn, now, tenant_id, agent, id)
        known = conn.execute(SQL["find_message"], values).fetchone()
    return Sent(id, created=id == message.id, job_id=_uuid(known["consumed_by_job_id"]))


def _uuid(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)
