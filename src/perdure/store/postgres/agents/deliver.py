"""Binding the due messages of an agent to jobs, under the lock of the agent."""

from __future__ import annotations

from contextlib import suppress

from perdure.model.agents import AgentInstance
from perdure.model.errors import IllegalTransition
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
from perdure.store.postgres.agents.locked_agent import lock_agent
from perdure.store.postgres.agents.wake import deliver_reply, wake_waiting
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.jobs.control import cancel_in
from perdure.store.postgres.jobs.enqueue_values import many_jobs
from perdure.store.postgres.signals.agent_signals import answer_waits, give_to_new
from perdure.store.rows import Row


async def deliver(tx: Transaction, tenant_id: str, agent_id: str) -> int:
    """See `protocol.AgentStore.deliver`."""
    if agent_id.startswith(REPLY_PREFIX):
        return await deliver_reply(tx, tenant_id, agent_id)
    agent = await lock_agent(tx, tenant_id, agent_id)
    if agent is None or agent.paused_at is not None:
        await tx.rows("drop_deliveries", tenant_id=tenant_id, agent_id=agent_id)
        return 0  # resuming it writes the next row
    return await deliver_to(tx, tenant_id, agent)


async def deliver_to(tx: Transaction, tenant_id: str, agent: AgentInstance) -> int:
    """`deliver` to an agent that is locked and not paused."""
    place = {"tenant_id": tenant_id, "agent_id": agent.id}
    await tx.rows("drop_deliveries", **place)
    signals = await answer_waits(tx, tenant_id, agent.id)
    await tx.rows("expire_messages", **place)
    busy, rows = await _due(tx, tenant_id, agent)
    woken = await wake_waiting(tx, tenant_id, agent) if rows else 0
    if woken:
        busy, rows = await _due(tx, tenant_id, agent)
    due = [message_of(row, CODEC) for row in rows[:MOST_MESSAGES]]
    plan = plan_delivery(agent, due, busy=busy)
    await start_jobs(tx, tenant_id, agent, plan.starts)
    if plan.more or (plan.bound and len(rows) > MOST_MESSAGES):
        await tx.rows("add_delivery", **place)
    return signals + woken + plan.bound


async def _due(tx: Transaction, tenant_id: str, agent: AgentInstance) -> tuple[bool, list[Row]]:
    """Whether the agent is busy, where that matters, and the first due messages: no more than it can take now."""
    busy = one_at_a_time(agent) and await _is_busy(tx, tenant_id, agent.id)
    place = {"tenant_id": tenant_id, "agent_id": agent.id}
    return busy, await tx.rows("due_messages", **place, limit=most_due(agent, busy=busy))


async def start_jobs(tx: Transaction, tenant_id: str, agent: AgentInstance, starts: list[Start]) -> None:
    """Enqueue jobs, each with the messages that it consumes."""
    if not starts:
        return
    if agent.on_busy == "interrupt":
        for start in starts:
            await _interrupt(tx, tenant_id, agent, start)
    await tx.rows("enqueue_many", **many_jobs([start.job for start in starts], [tenant_id]))
    pairs = job_ids(starts)
    await tx.rows("consume_messages", ids=[*pairs], job_ids=[*pairs.values()])
    await give_to_new(tx, tenant_id, agent.id, starts[0].job.id)


async def start_for(tx: Transaction, tenant_id: str, agent: AgentInstance, message_id: object) -> None:
    """Start a job for one message, whatever the intake of its agent."""
    row = await tx.row("get_message", tenant_id=tenant_id, id=message_id)
    assert row is not None
    message = message_of(row, CODEC)
    if agent.on_busy == "reject" and await _is_busy(tx, tenant_id, agent.id):
        raise agent_busy(agent.id)
    await start_jobs(tx, tenant_id, agent, [Start(job_for(agent, (message,)), (message,))])


async def _is_busy(tx: Transaction, tenant_id: str, agent_id: str) -> bool:
    row = await tx.row("agent_is_busy", tenant_id=tenant_id, agent_id=agent_id)
    assert row is not None
    return bool(row["busy"])


async def _interrupt(tx: Transaction, tenant_id: str, agent: AgentInstance, start: Start) -> None:
    """Cancel the jobs whose place one takes: those of its session that are not suspended."""
    session_id = start.job.session_id
    place = {"tenant_id": tenant_id, "agent_id": agent.id, "session_id": session_id}
    for row in await tx.rows("jobs_to_interrupt", **place):
        with suppress(IllegalTransition):  # it has ended meanwhile
            await cancel_in(tx, tenant_id, row["job_id"], note=interrupt_note(start), force=False)
