"""What becomes of the due messages of an agent: pure rules, which both dialects carry out under the lock of the agent."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from perdure.model.agents import AgentInstance, key_of_agent
from perdure.model.ids import uuid7
from perdure.model.jobs import MAX_JSON_BYTES, NewJob
from perdure.model.messages import GOAL_LENGTH, PROCESS_INBOX, REPLY_PREFIX, Message, recorded_message

MOST_MESSAGES = 100
"""Of one delivery; what is left is delivered by the next one."""


class Start(NamedTuple):
    """A job to be started, and the messages that it gets."""

    job: NewJob
    messages: tuple[Message, ...]


class Plan(NamedTuple):
    """What a delivery does. more: whether the next delivery has something to do at once."""

    starts: list[Start]
    more: bool = False

    @property
    def bound(self) -> int:
        """How many messages find a job."""
        return sum(len(start.messages) for start in self.starts)


def one_at_a_time(agent: AgentInstance) -> bool:
    """Whether a message has to wait while the agent is busy, or takes the place of what it does."""
    return agent.intake == "inbox" or agent.on_busy in ("reject", "interrupt")


def most_due(agent: AgentInstance, *, busy: bool) -> int:
    """How many due messages a delivery has to read: one more than it binds, so that it knows whether there are more."""
    if not one_at_a_time(agent):
        return MOST_MESSAGES + 1
    if busy and agent.on_busy != "interrupt":
        return 1
    return min(_most_together(agent), MOST_MESSAGES) + 1


def plan_delivery(agent: AgentInstance, due: Sequence[Message], *, busy: bool) -> Plan:
    """Bind messages, which come in the order of their due time, then id. busy: the agent has a job that is not suspended. With
    `interrupt` it does not count: a job that starts takes the place of the others."""
    starting = [message for message in due if not message.channel.startswith(REPLY_PREFIX)]
    if not one_at_a_time(agent):
        return Plan([Start(job_for(agent, (message,)), (message,)) for message in starting])
    if (busy and agent.on_busy != "interrupt") or not starting:
        return Plan([])
    batch = _batch(agent, starting)
    more = agent.on_busy == "interrupt" and len(starting) > len(batch)
    return Plan([Start(job_for(agent, batch), batch)], more)


def interrupt_note(start: Start) -> str:
    """The note of the cancel of a job whose place this one takes, as JSON."""
    first = start.messages[0]
    note = {
        "actor": first.from_agent_id or "message",
        "via": "message",
        "reason": f"interrupted by message {first.id}",
        "message": str(first.id),
    }
    return json.dumps(note, ensure_ascii=False)


def job_for(agent: AgentInstance, messages: tuple[Message, ...]) -> NewJob:
    """The job that an agent starts for one message, or for several of a session."""
    first = messages[0]
    note: dict[str, Any] = {"actor": first.from_agent_id or "message", "via": "message", "message": str(first.id)}
    if len(messages) > 1:
        note["messages"] = len(messages)
    return NewJob(
        id=uuid7(),
        kind=agent.kind,
        payload=payload_for(agent, messages),
        queue=agent.queue,
        goal=goal_for(agent, messages),
        max_retries=agent.max_retries,
        note=json.dumps(note, ensure_ascii=False),
        concurrency_key=key_of_agent(agent.id),
        max_concurrent=agent.max_concurrent,
        agent_id=agent.id,
        session_id=first.session_id or agent.default_session_id,
    )


def payload_for(agent: AgentInstance, messages: Sequence[Message]) -> str:
    """The payload of such a job, as JSON."""
    records = [recorded_message(message) for message in messages]
    one = agent.batch == 1 or agent.intake == "each"
    return json.dumps({"message": records[0]} if one else {"messages": records}, ensure_ascii=False)


def goal_for(agent: AgentInstance, messages: Sequence[Message]) -> str | None:
    """Its goal: what the message says, or that it is a batch."""
    if agent.intake == "inbox" and agent.batch > 1:
        return PROCESS_INBOX
    return messages[0].text.replace("\x00", "")[:GOAL_LENGTH] or None


def _most_together(agent: AgentInstance) -> int:
    return 1 if agent.intake == "each" else agent.batch


def _batch(agent: AgentInstance, due: Sequence[Message]) -> tuple[Message, ...]:
    """The first messages, as many as one job gets: those of one session, that one payload can hold."""
    same = itertools.takewhile(lambda message: message.session_id == due[0].session_id, due[: _most_together(agent)])
    return fitting_together(same)


def fitting_together(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The first of these messages, as many as one payload, or one event, can hold: at least one, if there is one."""
    chosen: list[Message] = []
    size = 0
    for message in messages:
        size += len(json.dumps(recorded_message(message)))
        if chosen and size > MAX_JSON_BYTES:
            break
        chosen.append(message)
    return tuple(chosen)


def job_ids(starts: Sequence[Start]) -> dict[UUID, UUID]:
    """By message: the job that gets it."""
    return {message.id: start.job.id for start in starts for message in start.messages}
