"""The configuration of a worker of the harness, as it is passed to its process."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

ENTRY = "perdure.chaos.worker:run_worker"
"""What a worker's process runs."""
LOST = "lost"
"""What a worker sends when it notices that it lost a lease."""
LEASE = 1.0
"""Seconds: the shortest there is, so that jobs of a killed worker are taken over soon."""
LINGER = 0.15
CHORES = 0.3
DRAIN = 1.0
GRACE = 0.2
TOO_MANY_HUNG = 11
"""The exit code of a worker with too many calls that hang."""


@dataclass(frozen=True)
class WorkerConfig:
    """Its database and tenant, the directory of the effects file, its settings, and how often its code has changed before it."""

    url: str
    tenant: str
    directory: str
    lease: float
    concurrency: int
    generation: int = 0

    def text(self) -> str:
        """As one text."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> WorkerConfig:
        """What `text` gave."""
        return WorkerConfig(**json.loads(text))
