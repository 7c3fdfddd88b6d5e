"""Messages between agents, from outside to agents, and replies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

DEFAULT_CHANNEL = "default"
REPLY_PREFIX = "reply:"
"""Of channels on which a reply is waited for: their messages start no job."""
MOST_RECEIVED = 100
"""Messages of one call of `receive`."""
MAX_MESSAGE_BYTES = 1_000_000
"""Of the JSON text of one payload."""
GOAL_LENGTH = 2000
PROCESS_INBOX = "process inbox"


class NewMessage(NamedTuple):
    """A message to be sent, already checked. payload: JSON text. to_agent_id: None for a reply to a sender that is no agent.
    delay, expires_in: seconds from database time."""

    id: UUID
    to_agent_id: str | None
    payload: str
    channel: str = DEFAULT_CHANNEL
    session_id: str | None = None
    delay: float = 0.0
    expires_in: float | None = None
    causation_id: str | None = None
    idempotency_key: str | None = None
    reply_to: UUID | None = None
    reply_channel: str | None = None


class Sent(NamedTuple):
    """A message was sent. created: False if one with the same idempotency key was there. job_id: the job that got it at once."""

    id: UUID
    created: bool
    job_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message.

    to_agent_id: None for a reply to a sender that is no agent. from_agent_id: None where no agent sent it. payload: plain JSON.
    session_id: of the job that gets it; None: the default of its agent. created_at: when it was sent. due_at: when it may be
    delivered. expires_at: when it is no longer delivered. consumed_by_job_id, consumed_at: the job that got it, and when.
    refused: why it was not delivered: "expired", or "late": a reply that is no longer waited for. causation_id: what caused it,
    as its sender says. job_id: the job that sent it. reply_to: the message it answers. reply_channel: where its sender waits
    for the reply.
    """

    id: UUID
    to_agent_id: str | None
    from_agent_id: str | None
    channel: str
    payload: Any
    created_at: datetime
    due_at: datetime
    session_id: str | None = None
    expires_at: datetime | None = None
    consumed_by_job_id: UUID | None = None
    consumed_at: datetime | None = None
    refused: str | None = None
    causation_id: str | None = None
    idempotency_key: str | None = None
    job_id: UUID | None = None
    reply_to: UUID | None = None
    reply_channel: str | None = None

    @property
    def pending(self) -> bool:
        """Whether no job has got it, and one may."""
        return self.state == "pending"

    @property
    def state(self) -> str:
        """In one word: consumed, expired, late, pending, or sent: to a sender that is no agent."""
        if self.consumed_by_job_id is not None:
            return "consumed"
        return self.refused or ("sent" if self.to_agent_id is None else "pending")

    @property
    def text(self) -> str:
        """What it says, as text: the payload itself if that is text, else as JSON."""
        return self.payload if isinstance(self.payload, str) else json.dumps(self.payload, ensure_ascii=False)


def reply_channel_of(message_id: UUID) -> str:
    """The channel on which the sender of a message waits for the reply."""
    return f"{REPLY_PREFIX}{message_id}"


def asked_by(channel: str) -> UUID:
    """The message whose reply is waited for on this channel."""
    return UUID(channel.removeprefix(REPLY_PREFIX))


def wanted_text(channel: str | None, limit: int) -> str:
    """What a wait for messages takes, as its subject says it: at most `limit` of this channel; None: of any."""
    return f"{limit}:{channel or ''}"


def wanted(subject: str | None) -> tuple[str | None, int]:
    """The channel and the limit of a wait for messages."""
    limit, _, channel = (subject or "").partition(":")
    return channel or None, int(limit) if limit.isdecimal() else 1


def recorded_message(message: Message) -> dict[str, Any]:
    """A message as the payload of its job, or the answer of a wait, holds it: plain JSON."""
    record = {
        "id": str(message.id),
        "to": message.to_agent_id,
        "from": message.from_agent_id,
        "channel": message.channel,
        "payload": message.payload,
        "session": message.session_id,
        "created_at": message.created_at.isoformat(),
        "due_at": message.due_at.isoformat(),
        "causation": message.causation_id,
        "job": None if message.job_id is None else str(message.job_id),
        "reply_to": None if message.reply_to is None else str(message.reply_to),
        "reply_channel": message.reply_channel,
    }
    return {name: value for name, value in record.items() if value is not None or name == "payload"}


def message_from(record: Mapping[str, Any]) -> Message:
    """The message that `recorded_message` wrote down. Raises KeyError, ValueError or TypeError for anything else."""
    job, reply_to = record.get("job"), record.get("reply_to")
    return Message(
        id=UUID(record["id"]),
        to_agent_id=record.get("to"),
        from_agent_id=record.get("from"),
        channel=record["channel"],
        payload=record["payload"],
        created_at=datetime.fromisoformat(record["created_at"]),
        due_at=datetime.fromisoformat(record["due_at"]),
        session_id=record.get("session"),
        causation_id=record.get("causation"),
        job_id=None if job is None else UUID(job),
        reply_to=None if reply_to is None else UUID(reply_to),
        reply_channel=record.get("reply_channel"),
    )


def messages_of_payload(payload: Any) -> tuple[Message, ...]:
    """The messages that a job was started for; none where its payload is anything else."""
    if not isinstance(payload, dict) or payload.keys() not in ({"message"}, {"messages"}):
        return ()
    records = [payload["message"]] if "message" in payload else payload["messages"]
    try:
        return tuple(message_from(record) for record in records)
    except (KeyError, ValueError, TypeError, AttributeError):
        return ()
