"""What a context does as that of an agent: its messages, what it sends, asks and receives."""

from __future__ import annotations

import json
from typing import Any, TypeVar, overload
from uuid import UUID

from perdure.model.agents import AgentInstance
from perdure.model.messages import DEFAULT_CHANNEL, Message, messages_of_payload
from perdure.model.signals import ReceivedSignal
from perdure.model.timing import Duration
from perdure.model.waits import MESSAGE
from perdure.runtime import codec
from perdure.runtime.context.child_calls import ChildCalls
from perdure.runtime.context.messages import check_limit, check_receives
from perdure.runtime.context.session import Session
from perdure.runtime.context.signals import take_all
from perdure.runtime.history import TAKE_SIGNALS
from perdure.runtime.message_checks import check_channel, check_message
from perdure.runtime.validation import check_seconds

M = TypeVar("M")


class AgentCalls(ChildCalls):
    """The part of `JobContext` that is about agents and their messages."""

    _message: Message | None = None

    @property
    def agent(self) -> AgentInstance | None:
        """The agent whose job it is, as it was when this attempt began; its persona is in `meta`. None for a job without one."""
        return None if self._run.of_agent is None else self._run.of_agent.agent

    @property
    def agent_id(self) -> str | None:
        """The id of that agent."""
        return None if self._run.of_agent is None else self._run.of_agent.agent_id

    @property
    def session_id(self) -> str | None:
        """The session of that agent which the job belongs to."""
        return None if self._run.of_agent is None else self._run.of_agent.session_id

    @property
    def session(self) -> Session:
        """The state of that session, which the agent's jobs share. Raises InvalidInput in a job without an agent."""
        return self._caller.session

    @property
    def agent_messages(self) -> tuple[Message, ...]:
        """The messages that the job was started for; empty for other jobs."""
        return () if self._run.of_agent is None else messages_of_payload(json.loads(self._run.claimed.payload))

    @property
    def signals(self) -> tuple[ReceivedSignal, ...]:
        """The signals that the job had when it began, the oldest first: those to its agent that were pending when it was started
        for a message or claimed first, and those that were sent to the job itself before that. The same in every attempt. A
        wait for the key of one of them takes it."""
        return tuple(self._run.history.signals)

    async def receive_signals(self) -> list[ReceivedSignal]:
        """Take all signals that are pending now, the oldest first: those to the job's agent, and those that the job has and no
        wait took, which may be in `signals` too. Empty if there are none; it does not wait. They are consumed by this job, in
        the commit that records them, and a replay gets the same ones. The second call is `receive_signals#2`; parallel ones
        need options(key=...). Raises StepChanged."""
        key = await self._caller.enter(TAKE_SIGNALS, "receive_signals", self._options)
        return await take_all(self._run, key)

    @property
    def message(self) -> Message | None:
        """The message that is handled; None in other jobs, and where the job has several and `on_message` is not used."""
        if self._message is not None:
            return self._message
        return self.agent_messages[0] if len(self.agent_messages) == 1 else None

    async def send(
        self,
        to: str,
        payload: Any,
        *,
        channel: str = DEFAULT_CHANNEL,
        session: str | None = None,
        delay: Duration = 0,
        expires_in: Duration | None = None,
        idempotency_key: str | None = None,
        causation_id: str | None = None,
    ) -> UUID:
        """Send a message to an agent, once: it commits together with its event, and a replay does not send it again. Messages to
        one agent have the keys `to`, `to#2`, ...; parallel branches give options(key=...). Inside the function of a step or tool
        every call counts. It is delivered when it is due: after `delay`, unless `expires_in` has passed since now. session: of
        the job that gets it. causation_id: what caused it, by default the message that this job handles. Returns its id.

        Raises AgentNotFound, AgentPaused, AgentBusy, NotJson, TooLarge (over 1,000,000 bytes), NegativeDelay, InvalidInput.
        """
        message = check_message(
            to,
            payload,
            channel=channel,
            session=session,
            delay=delay,
            expires_in=expires_in,
            idempotency_key=idempotency_key,
            causation_id=self._cause(causation_id),
        )
        return await self._caller.mail.send(self._options.key, message)

    @overload
    async def ask(
        self,
        agent: str,
        payload: Any,
        reply: type[M],
        *,
        timeout: Duration | None = None,
        channel: str = DEFAULT_CHANNEL,
        session: str | None = None,
    ) -> M: ...
    @overload
    async def ask(
        self,
        agent: str,
        payload: Any,
        reply: None = None,
        *,
        timeout: Duration | None = None,
        channel: str = DEFAULT_CHANNEL,
        session: str | None = None,
    ) -> Any: ...
    async def ask(
        self,
        agent: str,
        payload: Any,
        reply: Any = None,
        *,
        timeout: Duration | None = None,
        channel: str = DEFAULT_CHANNEL,
        session: str | None = None,
    ) -> Any:
        """Send a message to an agent, once, and wait for its reply: what the handler that it gave to `on_message` returns, as
        plain JSON or as the type `reply`. Without a worker, and whatever restarts meanwhile. Questions to one agent have the keys
        `ask:<agent>`, `ask:<agent>#2`, ...; parallel branches give options(key=...).

        Raises ReplyTimeout if no reply came within `timeout`, also in a replay; AgentNotFound, AgentPaused, AgentBusy, NotJson,
        TooLarge; InvalidInput, also for a reply that is not of that type; StepChanged.
        """
        codec.check_type(reply, f"the reply of agent '{agent}'")
        message = check_message(agent, payload, channel=channel, session=session, causation_id=self._cause(None))
        limit = None if timeout is None else check_seconds(timeout, "timeout")
        key = await self._caller.enter(MESSAGE.name, f"ask:{agent}", self._options)
        return await self._caller.mail.ask(key, message, reply, limit)

    async def receive(
        self, channel: str | None = None, *, limit: int = 10, timeout: Duration | None = None
    ) -> list[Message]:
        """Wait for messages to the job's agent, and return the first that come, in the order of their due time: at most `limit`
        (1 to 100), of this channel, or of any. They are consumed by this job, and a replay gets the same ones. Without a worker
        while there is none; a message that this waits for starts no job. Of a message with a session only jobs of that session
        get it. The second call for a channel is `channel#2`; parallel ones need options(key=...).

        timeout: after it, what is returned is an empty list; 0 takes what is there. Raises InvalidInput, also in a job without an
        agent; StepChanged.
        """
        check_receives(self._run)
        check_limit(limit)
        name = "receive" if channel is None else check_channel(channel)
        seconds = None if timeout is None else check_seconds(timeout, "timeout")
        key = await self._caller.enter(MESSAGE.name, name, self._options)
        return await self._caller.mail.receive(key, channel, limit, seconds)

    def _cause(self, causation_id: str | None) -> str | None:
        cause = self.message
        return str(cause.id) if causation_id is None and cause is not None else causation_id
