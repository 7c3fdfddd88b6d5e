"""Workers as the database knows them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class WorkerState(StrEnum):
    """RUNNING takes work; DRAINING finishes what it has and takes no more; STOPPED has left."""

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
    """One worker process. `alive` is judged by database time: heard of within three heartbeats."""

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
    command: WorkerCommand | None = None
