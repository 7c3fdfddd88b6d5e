"""Agents: long-lived identities that have many jobs over time, and a mailbox."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple
from uuid import UUID

from perdure.model.jobs import DEFAULT_QUEUE
from perdure.model.timing import Backoff

Intake = Literal["each", "inbox"]
OnBusy = Literal["enqueue", "reject", "interrupt", "parallel"]

KEY_PREFIX = "agent:"
ANY_NUMBER = 1_000_000
"""The maximum of the jobs of an agent whose jobs are not counted."""


def key_of_agent(agent_id: str) -> str:
    """The concurrency key of the jobs of an agent."""
    return KEY_PREFIX + agent_id


class AgentStatus(StrEnum):
    """What an agent does, derived from its jobs: the first that holds.

    RUNNING: a job of it runs. WAITING: one waits for a moment, with its worker. PARKED: one is suspended, also for an approval,
    or a delayed message is not due yet. FAILED: the last of its jobs that ended is FAILED or DEADLETTER (cancelled ones do not
    count). IDLE: anything else; jobs that have not started leave it idle.
    """

    RUNNING = "running"
    WAITING = "waiting"
    PARKED = "parked"
    FAILED = "failed"
    IDLE = "idle"


class NewAgent(NamedTuple):
    """An agent to be created, already checked. Its fields are those of AgentInstance; meta and backoff are JSON text."""

    id: str
    kind: str
    name: str | None = None
    default_session_id: str | None = None
    meta: str = "{}"
    queue: str = DEFAULT_QUEUE
    intake: Intake = "each"
    batch: int = 1
    on_busy: OnBusy = "enqueue"
    max_parallel_jobs: int = 1
    max_retries: int | None = None
    backoff: str | None = None


CHANGEABLE = frozenset(NewAgent._fields) - {"id"}
"""What may be changed of an agent."""


@dataclass(frozen=True, slots=True)
class AgentInstance:
    """An agent.

    id: its name in commands and messages. kind: the handler of its jobs. name: for people. default_session_id: the session of
    jobs and messages that name none. meta: anything, such as its persona. queue: of its jobs. intake: "each", a job for each
    message, or "inbox", messages wait until it is free. batch: how many messages a job from the inbox gets at most. on_busy: what
    becomes of a message while it has a job. max_parallel_jobs: how many of its jobs run at a time. max_retries, backoff: of its
    jobs; None: what the handler says. paused_at: since when no message is accepted or delivered. status: derived from its jobs.
    """

    id: str
    tenant_id: str
    kind: str
    name: str | None
    default_session_id: str | None
    meta: dict[str, Any]
    queue: str
    intake: Intake
    batch: int
    on_busy: OnBusy
    max_parallel_jobs: int
    max_retries: int | None
    backoff: Backoff | None
    paused_at: datetime | None
    created_at: datetime
    updated_at: datetime
    status: AgentStatus | None = None
    """None where it was not asked for."""
    waiting_messages: int | None = None
    """While it is paused: how many messages are pending, counted up to 1,000; else None, and in lists."""

    @property
    def max_concurrent(self) -> int:
        """How many of its jobs may hold a lease."""
        return ANY_NUMBER if self.on_busy == "parallel" else self.max_parallel_jobs


class NewState(NamedTuple):
    """What is saved for a session. session_id: '' for that of jobs without one. state: JSON text. expected: the version that it
    was read at, 0 if nothing was saved yet. key: of the call of a job, else one that no other call has."""

    agent_id: str
    session_id: str
    state: str
    expected: int
    key: str


@dataclass(frozen=True, slots=True)
class SessionState:
    """What was saved last for a session of an agent.

    session_id: None for that of jobs without one. state: plain JSON. version: how often it was saved. updated_at: when. job_id:
    the job that saved it; None where a client did.
    """

    agent_id: str
    session_id: str | None
    state: Any
    version: int
    updated_at: datetime
    job_id: UUID | None = None


class JobAgent(NamedTuple):
    """Whose job a job is. agent: None where no such agent was created. has_signals: whether the job has got any signal."""

    agent_id: str
    session_id: str | None
    agent: AgentInstance | None
    has_signals: bool = False
