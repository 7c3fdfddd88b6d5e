"""Binding the messages of an agent to the waits of its jobs, and replies to those who wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from perdure.model.agents import AgentInstance
from perdure.model.mailbox import fitting_together
from perdure.model.messages import Message, asked_by, wanted
from perdure.store.agent_rows import message_note, message_of
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.locked_job import LockedJob, lock_job
from perdure.store.postgres.signals.agent_signals import give_all


async def wake_waiting(tx: Transaction, tenant_id: str, agent: AgentInstance) -> int:
    """Give the due messages of an agent, which is locked, to the jobs of it that wait for them; return how many were bound."""
    place = {"tenant_id": tenant_id, "agent_id": agent.id}
    ids = sorted({row["job_id"] for row in await tx.rows("agent_waits", **place)})
    if not ids:
        return 0
    jobs = {id: await lock_job(tx, id, tenant_id) for id in ids}
    bound = 0
    for wait in await tx.rows("agent_waits", **place):
        if wait["job_id"] not in jobs:
            continue  # it was opened meanwhile: its own look follows
        channel, limit = wanted(wait["subject_id"])
        rows = await tx.rows(
            "messages_for_wait",
            **place,
            channel=channel,
            session_id=wait["session_id"],
            default_session_id=agent.default_session_id,
            limit=limit,
        )
        messages = fitting_together([message_of(row, CODEC) for row in rows])
        if messages:
            job = await _bind(tx, jobs[wait["job_id"]], wait["key"], messages)
            jobs[job.id] = await give_all(tx, tenant_id, agent.id, job)
            bound += len(messages)
    return bound


async def deliver_reply(tx: Transaction, tenant_id: str, channel: str) -> int:
    """Give a reply to the job that waits for it; return how many were bound. One that is no longer waited for is marked."""
    place = {"tenant_id": tenant_id, "channel": channel, "asked": asked_by(channel)}
    await tx.rows("drop_deliveries", tenant_id=tenant_id, agent_id=channel)
    wait = await tx.row("reply_wait", **place)
    job = None if wait is None else await lock_job(tx, wait["job_id"], tenant_id)
    wait = None if job is None else await tx.row("reply_wait", **place)
    row = await tx.row("due_reply", **place)
    if row is None:
        return 0
    if wait is None or job is None:
        await tx.rows("refuse_late", id=row["id"])
        return 0
    await _bind(tx, job, wait["key"], [message_of(row, CODEC)])
    return 1


async def _bind(tx: Transaction, job: LockedJob, key: str, messages: Sequence[Message]) -> LockedJob:
    """Returns the job as it is locked then: the head of its log has moved."""
    ids: list[UUID] = [message.id for message in messages]
    await tx.rows("bind_messages", job_id=job.id, key=key, ids=ids)
    for message in messages:
        version = await job.append(tx, "agent_message", message_note(message, key))
        job = LockedJob(job.id, job.status, version, job.claim)
    await tx.rows("answer_message_wait", job_id=job.id, key=key)
    return job
