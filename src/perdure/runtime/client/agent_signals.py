"""Sending signals to agents, and reading them, by a client."""

from __future__ import annotations

from typing import Any

from perdure.model.errors import AgentNotFound
from perdure.model.ids import uuid7
from perdure.model.jobs import Page
from perdure.model.signals import AgentSignal, NewAgentSignal
from perdure.model.timing import Duration
from perdure.runtime import codec
from perdure.runtime.client.base import ClientPart
from perdure.runtime.message_checks import check_agent_id
from perdure.runtime.validation import check_key, check_limit, check_seconds, check_text
from perdure.store.errors import agent_not_found


class AgentSignals(ClientPart):
    """See `agents.Agents`."""

    async def signal(
        self,
        agent_id: str,
        key: str,
        payload: Any = None,
        *,
        id: str | None = None,
        expires_in: Duration | None = None,
    ) -> AgentSignal:
        """Send a signal to an agent; return it. One job of the agent gets it, once: the one whose `wait_signal` of the same key
        has waited longest; without one it is pending, until a job of the agent begins, which has it in `ctx.signals`, or waits
        for it.

        id: a second signal of the same agent with it is the same signal, and is not sent again. expires_in: seconds or text; a
        signal that is pending after that is given to no job. An agent that a handler of this app is for is created by it.
        Raises AgentNotFound, AgentPaused, SignalConflict (the id belongs to another signal of the agent), InvalidInput, NotJson,
        TooLarge.
        """
        new = NewAgentSignal(
            id=uuid7(),
            agent_id=check_agent_id(agent_id),
            key=check_key(key, "key"),
            payload=codec.encode(payload, f"the payload of signal '{key}'"),
            caller_id=check_text(id, "id", 200),
            expires_in=None if expires_in is None else check_seconds(expires_in, "expires_in"),
            actor=self._scope.actor,
            via=self._scope.via,
        )
        store, known = await self._store(), self._scope.registry.agents.get(agent_id)
        try:
            return await store.signals.send_agent_signal(new)
        except AgentNotFound:
            if known is None:
                raise
        await store.agents.create_agent(known)
        return await store.signals.send_agent_signal(new)

    async def signals(
        self, agent_id: str, *, pending: bool = False, limit: int = 50, cursor: str | None = None
    ) -> Page[AgentSignal]:
        """The signals to an agent, newest first. pending: only those that no job has got yet, and may. Raises AgentNotFound,
        InvalidInput."""
        store = await self._store()
        found = await store.signals.list_agent_signals(
            agent_id, pending=pending, limit=check_limit(limit), cursor=cursor
        )
        if not found.items and await store.agents.get_agent(agent_id) is None:
            raise agent_not_found(agent_id)
        return found
