"""An agent as a transaction finds it."""

from __future__ import annotations

import sqlite3

from perdure.model.agents import AgentInstance
from perdure.store.agent_rows import agent_of
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.statements import SQL


def lock_agent(conn: sqlite3.Connection, tenant_id: str, agent_id: str) -> AgentInstance | None:
    """The agent as this transaction finds it; None if there is none."""
    row = conn.execute(SQL["lock_agent"], {"tenant_id": tenant_id, "agent_id": agent_id}).fetchone()
    return None if row is None else agent_of(row, CODEC)
