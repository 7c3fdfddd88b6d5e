"""The records of workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from perdure.model.jobs import ALL_QUEUES, DEFAULT_GRACE_SECONDS


class WorkerState(StrEnum):
    """RUNNING claims jobs; DRAINING finishes what it has and claims no more; STOPPED has ended."""

    RUNNING = "RUNNING"
    DRAINING = "DRAINING"
    STOPPED = "STOPPED"


class WorkerCommand(StrEnum):
    """What an operator may ask of a running worker."""

    DRAIN = "drain"
    STOP = "stop"
    STOP_NOW = "stop_now"


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker process.

    queues: those it claims from, `*` for all. kinds: the kinds it has handlers for. concurrency: how many jobs it runs at once.
    heartbeat_at: its last heartbeat. alive: whether that was less than three heartbeats ago, by database time.
    command: what it was asked to do and has not done yet. hung: calls that go on though their attempt has ended.
    grace: seconds a handler may take to stop after a cancel or its timeout.
    """

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    concurrency: int
    state: WorkerState
    started_at: datetime
    heartbeat_at: datetime
    alive: bool
    held: int = 0
    """Jobs it holds a live lease on, counted from the leases."""
    accounts: Mapping[str, int] = field(default_factory=dict)
    """How many of these take a slot of an account of a coding CLI, by account."""
    command: WorkerCommand | None = None
    hung: int = 0
    blocked: int = 0
    """How often its event loop stood still."""
    grace: float = DEFAULT_GRACE_SECONDS
    version: str | None = None
    """Of the code of its handlers."""

    def serves(self, queue: str) -> bool:
        """Whether it claims from this queue."""
        return queue in self.queues or ALL_QUEUES in self.queues
