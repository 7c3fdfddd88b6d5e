"""Agents, their mailboxes, and messages and signals to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.model.agents import AgentInstance, SessionState
from perdure.model.errors import (
    AgentBusy,
    AgentExists,
    AgentInUse,
    AgentNotFound,
    AgentPaused,
    IdempotencyConflict,
    InvalidInput,
    NotFound,
    SessionChanged,
    SignalConflict,
)
from perdure.model.jobs import Page
from perdure.model.messages import DEFAULT_CHANNEL, Message, Sent
from perdure.model.signals import AgentSignal
from perdure.model.timing import Duration
from perdure.operations.registry import Role, operation

if TYPE_CHECKING:
    from perdure import Client


@operation("agents.list", role=Role.VIEWER, errors=(InvalidInput,))
async def list_agents(
    client: Client, *, status: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[AgentInstance]:
    """Agents by id, with their status; status: only those in it."""
    return await client.agents.list(status=status, limit=limit, cursor=cursor)


@operation("agents.get", role=Role.VIEWER, errors=(AgentNotFound,))
async def get_agent(client: Client, id: str) -> AgentInstance:
    """One agent, with its status."""
    agent = await client.agents.get(id)
    if agent is None:
        raise AgentNotFound(
            f"no agent has the id '{id}'", hint="perdure agents ls shows them; perdure agents create makes one"
        )
    return agent


@operation("agents.create", role=Role.OPERATOR, errors=(AgentExists, InvalidInput))
async def create_agent(client: Client, id: str, **fields: Any) -> AgentInstance:
    """Create an agent; fields as in `Agents.create`."""
    return await client.agents.create(id, **fields)


@operation("agents.set", role=Role.OPERATOR, errors=(AgentNotFound, InvalidInput))
async def set_agent(client: Client, id: str, **changes: Any) -> AgentInstance:
    """Change fields of an agent, named as in `Agents.create`; jobs that are there keep what they were started with."""
    return await client.agents.update(id, **changes)


@operation(
    "agents.send", role=Role.OPERATOR, errors=(AgentNotFound, AgentPaused, AgentBusy, IdempotencyConflict, InvalidInput)
)
async def send_message(
    client: Client,
    to: str,
    payload: Any,
    *,
    from_: str | None = None,
    channel: str = DEFAULT_CHANNEL,
    session: str | None = None,
    delay: Duration = 0,
    expires_in: Duration | None = None,
    idempotency_key: str | None = None,
    kind: str | None = None,
) -> Sent:
    """Send a message to an agent. kind: create the agent, with this handler, if it is not there."""
    return await client.agents.send(
        to,
        payload,
        from_=from_,
        channel=channel,
        session=session,
        delay=delay,
        expires_in=expires_in,
        idempotency_key=idempotency_key,
        kind=kind,
    )


@operation("agents.inbox", role=Role.VIEWER, errors=(AgentNotFound, InvalidInput))
async def list_inbox(
    client: Client, id: str, *, pending: bool = False, limit: int = 50, cursor: str | None = None
) -> Page[Message]:
    """The messages to an agent, newest first; pending: only those that no job has got yet."""
    return await client.agents.inbox(id, pending=pending, limit=limit, cursor=cursor)


@operation("agents.outbox", role=Role.VIEWER, errors=(AgentNotFound, InvalidInput))
async def list_outbox(
    client: Client, id: str, *, pending: bool = False, limit: int = 50, cursor: str | None = None
) -> Page[Message]:
    """The messages from an agent, newest first; pending: only those that no job has got yet."""
    return await client.agents.outbox(id, pending=pending, limit=limit, cursor=cursor)


@operation("agents.pause", role=Role.OPERATOR, errors=(AgentNotFound,))
async def pause_agent(client: Client, id: str) -> AgentInstance:
    """Accept and deliver no messages to an agent until it is resumed; its jobs go on."""
    return await client.agents.pause(id)


@operation("agents.resume", role=Role.OPERATOR, errors=(AgentNotFound,))
async def resume_agent(client: Client, id: str) -> AgentInstance:
    """Accept and deliver the messages to an agent again."""
    return await client.agents.resume(id)


@operation("agents.delete", role=Role.OPERATOR, errors=(AgentNotFound, AgentInUse))
async def delete_agent(client: Client, id: str, *, force: bool = False) -> None:
    """Delete an agent and the states of its sessions, permanently; its jobs stay. force: cancel those that have not ended."""
    await client.agents.delete(id, force=force)


@operation("agents.signal", role=Role.OPERATOR, errors=(AgentNotFound, AgentPaused, SignalConflict, InvalidInput))
async def signal_agent(
    client: Client,
    agent_id: str,
    key: str,
    payload: Any = None,
    *,
    id: str | None = None,
    expires_in: Duration | None = None,
) -> AgentSignal:
    """Send a signal to an agent: one job of it gets it. id: a second signal of the agent with it is the same one."""
    return await client.agents.signal(agent_id, key, payload, id=id, expires_in=expires_in)


@operation("agents.signals", role=Role.VIEWER, errors=(AgentNotFound, InvalidInput))
async def list_agent_signals(
    client: Client, id: str, *, pending: bool = False, limit: int = 50, cursor: str | None = None
) -> Page[AgentSignal]:
    """The signals to an agent, newest first; pending: only those that no job has got yet, and may."""
    return await client.agents.signals(id, pending=pending, limit=limit, cursor=cursor)


@operation("agents.session", role=Role.VIEWER, errors=(InvalidInput, NotFound))
async def get_session(client: Client, id: str, *, session: str | None = None) -> SessionState:
    """What was saved last for a session of an agent; session: None for that of the jobs without one."""
    state = await client.agents.session(id, session)
    if state is None:
        which = "the jobs without a session" if session is None else f"session '{session}'"
        raise NotFound(f"nothing was saved for {which} of agent '{id}'", hint=f"perdure agents sessions {id}")
    return state


@operation("agents.sessions", role=Role.VIEWER, errors=(AgentNotFound, InvalidInput))
async def list_sessions(client: Client, id: str, *, limit: int = 50, cursor: str | None = None) -> Page[SessionState]:
    """The sessions of an agent for which something was saved."""
    return await client.agents.sessions(id, limit=limit, cursor=cursor)


@operation("agents.set_session", role=Role.OPERATOR, errors=(AgentNotFound, SessionChanged, InvalidInput))
async def set_session(
    client: Client, id: str, state: Any, *, session: str | None = None, expected: int | None = None
) -> SessionState:
    """Save the state of a session for its next job. expected: the version that it must have; None: any."""
    return await client.agents.set_session(id, state, session=session, expected=expected)
