"""Messages from inside a job: what it sends commits with its step, once."""

from __future__ import annotations

import json
from uuid import UUID

import structlog

from perdure.model.effects import send_message
from perdure.model.errors import PerdureError
from perdure.model.events import NewEvent
from perdure.model.ids import uuid7
from perdure.model.messages import NewMessage
from perdure.runtime.context.current_call import running_call
from perdure.runtime.context.names import Keys
from perdure.runtime.run import Run
from perdure.store.errors import agent_not_found, agent_paused

log = structlog.get_logger("perdure.run")


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
        with run.busy():
            agent = await run.store.agents.get_agent(to)
        if agent is None:
            raise agent_not_found(to)
        if agent.paused_at is not None:
            raise agent_paused(agent)
        note = {"key": its_key, "message": str(message.id), "to": to, "channel": message.channel}
        await run.record([NewEvent("message_sent", json.dumps(note))], send_message(message))
        if not message.delay:
            await self._deliver(to)
        return message.id

    async def _deliver(self, agent_id: str) -> None:
        """At once, as nothing waits for it; where it fails, workers deliver it."""
        try:
            with self._run.busy():
                await self._run.store.agents.deliver(agent_id)
        except PerdureError as error:
            log.warning("a message is delivered later", agent=agent_id, error=str(error))


def reply_to(
    run: Run, to_agent_id: str | None, *, answers: UUID, channel: str, session_id: str | None, text: str
) -> None:
    """Reply to a message in the transaction that completes the job. text: the payload, as JSON. to_agent_id: None where no agent
    sent it."""
    reply = NewMessage(uuid7(), to_agent_id, text, channel, session_id=session_id, reply_to=answers)
    assert run.of_agent is not None
    run.of_agent.end_effects.append(send_message(reply))
