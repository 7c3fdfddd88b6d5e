"""An agent as a transaction finds it."""

from __future__ import annotations

from perdure.model.agents import AgentInstance
from perdure.store.agent_rows import agent_of
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction


async def lock_agent(tx: Transaction, tenant_id: str, agent_id: str) -> AgentInstance | None:
    """Lock an agent; None if there is none."""
    row = await tx.row("lock_agent", tenant_id=tenant_id, agent_id=agent_id)
    return None if row is None else agent_of(row, CODEC)
