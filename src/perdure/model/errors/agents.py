"""Errors of agents and their messages."""

from __future__ import annotations

from perdure.model.errors.base import Conflict, NotFound


class AgentNotFound(NotFound):
    """No agent has this id."""

    code = "agent-not-found"


class AgentExists(Conflict):
    """There is an agent with this id already."""

    code = "agent-exists"


class AgentPaused(Conflict):
    """The agent is paused: it accepts no messages until it is resumed."""

    code = "agent-paused"
