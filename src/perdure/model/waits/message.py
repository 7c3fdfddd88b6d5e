"""The wait for messages: `ctx.receive` and `ctx.ask`."""

from __future__ import annotations

import shlex
from typing import Any, Protocol
from uuid import UUID

from perdure.model.effects import Effect, look_at_mailbox, release_messages
from perdure.model.explanation import Move, Situation, Why
from perdure.model.jobs import Wait
from perdure.model.messages import REPLY_PREFIX, Message, recorded_message, wanted
from perdure.model.timing import when
from perdure.model.waits.base import Facts, WaitFault, WaitKind, WaitLine


class _Agents(Protocol):
    async def bound_messages(self, job_id: UUID, wait_key: str) -> list[Message]: ...


class HasAgents(Protocol):
    """A store that has agents."""

    @property
    def agents(self) -> _Agents:
        """The role that reads messages."""
        ...


class MessageWait(WaitKind[HasAgents, list[Message]]):
    """Its subject says how many messages it takes, of which channel: see `wanted_text`. A delivery binds them and answers it."""

    name = "message"
    noun = "a wait for a message"
    answered_by = "agent_message"

    async def answer(self, store: HasAgents, job_id: UUID, wait: Wait) -> list[Message] | None:
        """See `WaitKind.answer`."""
        return await store.agents.bound_messages(job_id, wait.key) or None

    def opens(self, wait: Wait) -> tuple[Effect, ...]:
        """See `WaitKind.opens`. The mailbox is looked at: messages may be there."""
        return (*super().opens(wait), look_at_mailbox(_mailbox(wait)))

    def closes(self, wait: Wait, *, answered: bool) -> tuple[Effect, ...]:
        """See `WaitKind.closes`. Messages that came as it ended go to another job."""
        closed = super().closes(wait, answered=answered)
        return closed if answered else (release_messages(wait.key), *closed, look_at_mailbox(_mailbox(wait)))

    def recorded(self, answer: Any) -> dict[str, Any]:
        """See `WaitKind.recorded`."""
        return {} if answer is None else {"messages": [recorded_message(message) for message in answer]}

    def line(self, wait: Wait, seen: Situation) -> WaitLine | None:
        """See `WaitKind.line`."""
        channel, limit = wanted(wait.subject_id)
        agent = seen.job.agent_id or ""
        moves: tuple[Move, ...] = ()
        if channel is not None and channel.startswith(REPLY_PREFIX):
            short = f"the reply to message {channel.removeprefix(REPLY_PREFIX)} is to come"
        else:
            of = "" if channel is None else f" on channel '{channel}'"
            option = "" if channel is None else f" --channel {shlex.quote(channel)}"
            short = f"a message to agent '{agent}'{of} is to come"
            moves = (Move("send it", f"perdure agents send {shlex.quote(agent)} TEXT{option}"),)
        if wait.until is not None:
            short += f"; its time ends {when(wait.until, seen.now)}"
        fact = {"key": wait.key, "agent": seen.job.agent_id, "channel": channel, "limit": limit, "until": wait.until}
        return WaitLine(Why.WAITING, f"It waits: {short}.", short, "messages", fact, moves)

    def woke(self, wait: Wait, seen: Situation) -> str | None:
        """See `WaitKind.woke`."""
        if wait.answered_at is None:
            return None
        return f"A message for '{wait.key}' came {when(wait.answered_at, seen.now)}, "

    def fault(self, wait: Wait, facts: Facts) -> WaitFault | None:
        """See `WaitKind.fault`."""
        bound = next((row for row in facts.rows("messages") if row["consumed_key"] == wait.key), None)
        if bound is not None and wait.answered_at is None:
            text = f"'{wait.key}' has taken a message, and is not answered"
            return WaitFault(text, facts.time(bound, "consumed_at") or facts.now)
        if bound is None and wait.answered_at is not None:
            return WaitFault(f"its wait for '{wait.key}' is answered, and no message was taken", None)
        return None


def _mailbox(wait: Wait) -> str | None:
    """The mailbox that answers it; None: that of the job's agent."""
    channel, _ = wanted(wait.subject_id)
    return channel if channel is not None and channel.startswith(REPLY_PREFIX) else None


MESSAGE = MessageWait()
