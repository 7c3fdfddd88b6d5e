"""Errors of agents and their messages."""

from __future__ import annotations

from perdure.model.errors.base import Conflict, NotFound
from perdure.model.errors.verdicts import Verdict


class AgentNotFound(NotFound):
    """No agent has this id."""

    code = "agent-not-found"


class AgentExists(Conflict):
    """There is an agent with this id already."""

    code = "agent-exists"


class AgentInUse(Conflict):
    """The agent has jobs that have not ended, or messages or signals that no job has got yet: it is not deleted."""

    code = "agent-in-use"


class AgentPaused(Conflict):
    """The agent is paused: it accepts no messages until it is resumed."""

    code = "agent-paused"


class AgentBusy(Conflict):
    """The agent has a job, and takes no message meanwhile (`on_busy="reject"`)."""

    code = "agent-busy"


class SessionChanged(Conflict):
    """Another job saved the state of this session since this one read it."""

    code = "session-changed"
    conflicts: int | None = None
    """So many saves of the job another one was before, since it saved last; None: raised by other code or by a replay."""


class ReplyTimeout(Verdict, TimeoutError):
    """Raised in a handler: the agent that it asked did not reply in time. Not caught, it fails the job (`timeout`)."""

    code = "reply-timeout"

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"agent '{agent_id}' did not reply in time")
        self.agent_id = agent_id
