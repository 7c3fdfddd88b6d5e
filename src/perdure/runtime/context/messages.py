"""Messages from inside a job: what it sends commits with its step, once; what it receives, and replies, are waited for."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from perdure.model.agents import AgentStatus
from perdure.model.effects import open_wait, send_message
from perdure.model.errors import InvalidInput, ReplyTimeout
from perdure.model.events import NewEvent
from perdure.model.ids import uuid7
from perdure.model.jobs import Wait
from perdure.model.messages import MOST_RECEIVED, Message, NewMessage, message_from, reply_channel_of, wanted_text
from perdure.model.waits import MESSAGE
from perdure.runtime import codec
from perdure.runtime.context.current_call import running_call
from perdure.runtime.context.deliver_now import deliver_now
from perdure.runtime.context.names import Keys
from perdure.runtime.context.waits import completed, opened, record_end, recorded_answer, started
from perdure.runtime.run import Run
from perdure.store.errors import agent_busy, agent_not_found, agent_paused


class Mail:
    """The messages of one attempt."""

    def __init__(self, run: Run, keys: Keys) -> None:
        self._run = run
        self._keys = keys

    async def send(self, key: str | None, message: NewMessage) -> UUID:
        """See `JobContext.send`. key: of its options."""
        run = self._run
        await run.enter()
        to = message.to_agent_id
        assert to is not None
        call = running_call.get(None)
        inside = call is not None and call.lease == run.lease
        its_key = call.key_of(f"send:{to}") if call is not None and inside else self._keys.next("send", to, key)
        known = run.history.messages.get(its_key)
        if known is not None:
            return known
        await self._check_accepts(to, delayed=message.delay > 0)
        await run.record([_sent(its_key, message)], send_message(message))
        if not message.delay:
            await deliver_now(run, to)
        return message.id

    async def ask(self, key: str, message: NewMessage, model: Any, timeout: float | None) -> Any:
        """See `JobContext.ask`. timeout: seconds."""
        run, to = self._run, message.to_agent_id
        assert to is not None
        done = recorded_answer(run, MESSAGE, key)
        if done is None:
            wait = await self._asked(key, to, message, timeout)
            done = await record_end(run, MESSAGE, wait, await run.waits.answer(MESSAGE, wait))
        if "messages" not in done:
            raise ReplyTimeout(to)
        [reply] = done["messages"]
        return codec.decode(json.dumps(reply["payload"]), model, f"the reply of agent '{to}'")

    async def _asked(self, key: str, to: str, message: NewMessage, timeout: float | None) -> Wait:
        """The wait for the reply: that of an earlier attempt, or a new one, which begins as the message is sent."""
        run = self._run
        if (MESSAGE.name, key) in run.history.waits:
            return await opened(run, MESSAGE, key, None, None)
        await self._check_accepts(to)
        channel = reply_channel_of(message.id)
        until = None if timeout is None else run.database_now() + timedelta(seconds=timeout)
        wait = Wait(key, MESSAGE.name, until, wanted_text(channel, 1))
        events = [_sent(key, message), started(wait, timeout)]
        await run.record(events, send_message(message._replace(reply_channel=channel)), open_wait(wait))
        await deliver_now(run, to)
        return wait

    async def receive(self, key: str, channel: str | None, limit: int, timeout: float | None) -> list[Message]:
        """See `JobContext.receive`. timeout: seconds."""
        run = self._run
        subject = wanted_text(channel, limit)
        done = await completed(
            run, MESSAGE, key, duration=timeout, subject_id=subject, answer_of=partial(received, run)
        )
        return [message_from(record) for record in done.get("messages", ())]

    async def _check_accepts(self, agent_id: str, *, delayed: bool = False) -> None:
        """Raises AgentNotFound, AgentPaused, AgentBusy."""
        with self._run.busy():
            agent = await self._run.store.agents.get_agent(agent_id)
        if agent is None:
            raise agent_not_found(agent_id)
        if agent.paused_at is not None:
            raise agent_paused(agent)
        if agent.on_busy == "reject" and not delayed and agent.status in (AgentStatus.RUNNING, AgentStatus.WAITING):
            raise agent_busy(agent_id)


async def received(run: Run, wait: Wait) -> list[Message] | None:
    """The messages to the job's agent that an open wait takes; None: its time has come."""
    row = run.history.rows.get((wait.kind, wait.key))
    if run.of_agent is not None and (row is None or row.answered_at is None):
        await deliver_now(run, run.of_agent.agent_id)
    return await run.waits.answer(MESSAGE, wait)


def check_receives(run: Run) -> None:
    """Raise InvalidInput in a job without an agent."""
    if run.of_agent is None:
        raise InvalidInput(
            "this job is not one of an agent, which alone receives messages", hint="enqueue(..., agent=)"
        )


def check_limit(limit: object) -> int:
    """Raise InvalidInput unless a wait can take so many messages."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_RECEIVED:
        raise InvalidInput(f"limit must be between 1 and {MOST_RECEIVED}, got {limit!r:.60}")
    return limit


def _sent(key: str, message: NewMessage) -> NewEvent:
    note = {"key": key, "message": str(message.id), "to": message.to_agent_id, "channel": message.channel}
    return NewEvent("message_sent", json.dumps(note))


def reply_to(
    run: Run, to_agent_id: str | None, *, answers: UUID, channel: str, session_id: str | None, text: str
) -> None:
    """Reply to a message in the transaction that completes the job. text: the payload, as JSON. to_agent_id: None where no agent
    sent it."""
    reply = NewMessage(uuid7(), to_agent_id, text, channel, session_id=session_id, reply_to=answers)
    assert run.of_agent is not None
    run.of_agent.end_effects.append(send_message(reply))
