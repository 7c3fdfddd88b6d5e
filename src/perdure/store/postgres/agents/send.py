"""Sending a message from outside of jobs: stored and, if it is due, delivered in one transaction."""

from __future__ import annotations

from perdure.model.ids import same_json
from perdure.model.messages import NewMessage, Sent
from perdure.store.errors import agent_busy, agent_not_found, agent_paused, message_conflict
from perdure.store.postgres.agents.deliver import deliver_to, start_for
from perdure.store.postgres.agents.locked_agent import lock_agent
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.driver_errors import Restart


async def send(tx: Transaction, tenant_id: str, message: NewMessage, from_agent_id: str | None, *, start: bool) -> Sent:
    """See `protocol.AgentStore.send`."""
    to = message.to_agent_id
    assert to is not None
    agent = await lock_agent(tx, tenant_id, to)
    if agent is None:
        raise agent_not_found(to)
    wanted = {"id": message.id, "idempotency_key": message.idempotency_key}
    known = await tx.row("find_message", tenant_id=tenant_id, to_agent_id=to, **wanted)
    if known is None:
        if agent.paused_at is not None:
            raise agent_paused(agent)
        values = {**message._asdict(), "tenant_id": tenant_id, "from_agent_id": from_agent_id}
        if await tx.row("insert_message", **values) is None:
            raise Restart("a job sent a message with this key meanwhile")  # an effect takes no lock of the agent
        if start and not message.delay:
            await start_for(tx, tenant_id, agent, message.id)
        elif message.delay or (not await deliver_to(tx, tenant_id, agent) and agent.on_busy != "reject"):
            return Sent(message.id, created=True)
        known = await tx.row("find_message", tenant_id=tenant_id, to_agent_id=to, **wanted)
        assert known is not None
        if agent.on_busy == "reject" and not message.delay and known["consumed_by_job_id"] is None and known["open"]:
            raise agent_busy(to)
        return Sent(message.id, created=True, job_id=known["consumed_by_job_id"])
    if known["id"] != message.id and not same_json(known["payload"], message.payload):
        raise message_conflict(message, known["id"])
    if start and known["consumed_by_job_id"] is None and known["open"]:
        await start_for(tx, tenant_id, agent, known["id"])
        known = await tx.row("find_message", tenant_id=tenant_id, to_agent_id=to, **wanted)
        assert known is not None
    return Sent(known["id"], created=known["id"] == message.id, job_id=known["consumed_by_job_id"])
