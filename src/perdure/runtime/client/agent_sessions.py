"""`client.agents`: the state of sessions, which their jobs share."""

from __future__ import annotations

from typing import Any

from perdure.model.agents import NewState, SessionState
from perdure.model.errors import InvalidInput
from perdure.model.ids import new_event_id
from perdure.model.jobs import Page
from perdure.runtime import codec
from perdure.runtime.client.agent_signals import AgentSignals
from perdure.runtime.validation import check_key, check_limit
from perdure.store.errors import agent_not_found


class AgentSessions(AgentSignals):
    """The part of `Agents` that is about the state of sessions."""

    async def session(self, agent_id: str, session: str | None = None) -> SessionState | None:
        """What was saved last for a session of an agent, by `ctx.session.save` or `set_session`; None if nothing was. session:
        None for that of the jobs without one. Raises InvalidInput."""
        return await (await self._store()).agents.read_state(agent_id, _checked(session))

    async def sessions(self, agent_id: str, *, limit: int = 50, cursor: str | None = None) -> Page[SessionState]:
        """The sessions of an agent for which something was saved, by id. Raises AgentNotFound, InvalidInput."""
        agents = (await self._store()).agents
        found = await agents.list_states(agent_id, limit=check_limit(limit), cursor=cursor)
        if not found.items and await agents.get_agent(agent_id) is None:
            raise agent_not_found(agent_id)
        return found

    async def set_session(
        self, agent_id: str, state: Any, *, session: str | None = None, expected: int | None = None
    ) -> SessionState:
        """Save the state of a session, for its next job; return it. expected: the version that it must have, 0 for one for which
        nothing was saved; None: any. A job that runs and has read it before finds that out when it saves.

        Raises SessionChanged (it has another version), AgentNotFound, NotJson, TooLarge, InvalidInput.
        """
        if expected is not None:
            check_version(expected)
        text = codec.encode(state, "the state of the session")
        new = NewState(agent_id, _checked(session), text, expected or 0, f"client:{new_event_id()}")
        return await (await self._store()).agents.set_state(new, any_version=expected is None)


def check_version(value: object) -> None:
    """Raise InvalidInput unless it is a whole number, at least 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInput(f"expected is a version: a whole number, at least 0, got {value!r:.60}")


def _checked(session: str | None) -> str:
    return "" if session is None else check_key(session, "session")
