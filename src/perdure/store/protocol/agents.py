"""Agents and their messages. Part of `protocol.Store`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol
from uuid import UUID

from perdure.model.agents import AgentInstance, AgentStatus, JobAgent, NewAgent, NewState, SessionState
from perdure.model.jobs import Lease, Page
from perdure.model.messages import Message, NewMessage, Sent


class AgentStore(Protocol):
    """Agents, and the messages to and from them.

    What binds a message to a job has the lock of the agent it is for. Order of locks: agent, then those of jobs. A message is
    written without that lock, together with a row that says when its mailbox is looked at: so it is delivered although its
    sender was killed right after its commit.
    """

    async def create_agent(self, agent: NewAgent) -> bool:
        """Store an agent; False, and nothing is changed, if there is one of that id."""
        ...

    async def get_agent(self, agent_id: str) -> AgentInstance | None:
        """An agent with its status; None if there is none: jobs may name agents that were never created."""
        ...

    async def change_agent(self, agent_id: str, changes: Mapping[str, Any]) -> AgentInstance:
        """Change fields of `NewAgent`, as they are written there, or `paused` (true or false), and return the agent as it is
        then. Jobs that are there keep what they were started with. Raises `AgentNotFound`."""
        ...

    async def delete_agent(self, agent_id: str, *, force: bool = False) -> None:
        """Delete an agent, and the states of its sessions. Its jobs with their logs stay, and so do its messages and signals:
        those that are pending count as expired, as no job gets them any more. Raises `AgentNotFound`; `AgentInUse`, and nothing
        is changed, while it has jobs that have not ended, or pending messages or signals. force: it is deleted all the same."""
        ...

    async def list_agents(
        self, *, status: AgentStatus | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[AgentInstance]:
        """Agents by id, with their status."""
        ...

    async def agent_of(self, job_id: UUID) -> JobAgent | None:
        """Whose job it is; None if it names no agent or does not exist. The status of the agent is not read."""
        ...

    async def send(self, message: NewMessage, *, from_agent_id: str | None = None, start: bool = False) -> Sent:
        """Store a message and, if it is due, deliver it in the same transaction. start: it starts a job by itself, whatever the
        intake of the agent; that job is `job_id`. With an idempotency key that was used before for this agent nothing is written.
        Raises `AgentNotFound`, `AgentPaused`, `IdempotencyConflict`; `AgentBusy` where the agent rejects what it cannot
        take at once."""
        ...

    async def deliver(self, agent_id: str) -> int:
        """Bind due messages of an agent, in the order of their due time, then id, each to exactly one job; return how many were
        bound. Waits for messages of its jobs come first, the oldest first: a wait takes those of its channel and session, as many
        as it wants and one event can hold, and is answered in this transaction, with an event `agent_message` for each. The rest
        starts jobs, in this transaction; where an agent is to be interrupted, the jobs of that session that are not suspended are
        cancelled first. Nothing is bound while the agent is paused. Expired ones are marked. Pending signals of the agent go
        to open waits for their keys, the oldest first, and what is left of them to a job that is started or woken.

        agent_id: or the channel of a reply that is waited for: that wait takes it. A reply that is no longer waited for is
        marked."""
        ...

    async def bound_messages(self, job_id: UUID, wait_key: str) -> list[Message]:
        """What the job's wait for messages with this key has taken, in order."""
        ...

    async def read_state(self, agent_id: str, session_id: str) -> SessionState | None:
        """What the jobs of a session saved last; None if nothing. session_id: '' for that of jobs without one."""
        ...

    async def save_state(self, lease: Lease, new: NewState) -> int:
        """Save the state of a session under the lease of a job of it, with an event `session_saved`, and return its version, one
        more than `expected`. Called again with the same key it changes nothing. Raises `SessionChanged` unless the version is the
        expected one, `LeaseLost`."""
        ...

    async def set_state(self, new: NewState, *, any_version: bool = False) -> SessionState:
        """Save the state of a session, by no job, and return it. Called again with the same key it changes nothing. Raises
        `AgentNotFound`; `SessionChanged` unless the version is the expected one, or any_version is given."""
        ...

    async def list_states(self, agent_id: str, *, limit: int = 50, cursor: str | None = None) -> Page[SessionState]:
        """What was saved for the sessions of an agent, by session."""
        ...

    async def due_agents(self, *, limit: int = 100) -> list[str]:
        """Agents, and channels of replies, whose mailboxes are to be looked at, by `deliver`."""
        ...

    async def next_delivery(self) -> float | None:
        """Seconds until `due_agents` has the next one, 0 if it has some; None if no message is on its way."""
        ...

    async def list_messages(
        self,
        agent_id: str,
        box: Literal["inbox", "outbox"],
        *,
        pending: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Message]:
        """The messages to an agent, or from it, newest first. pending: only those that no job has got yet, and may."""
        ...
