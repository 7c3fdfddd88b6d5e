"""The configuration of a worker of the harness, as it is passed to its process."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

ENTRY = "perdure.chaos.worker:run_worker"
"""What a worker's process runs."""
LOST = "lost"
"""What a worker sends when it notices that it lost a lease."""
LINGER = 0.15
CHORES = 0.3
DRAIN = 1.0


@dataclass(frozen=True)
class WorkerConfig:
    """Its database and tenant, the directory of the effects file, and its settings."""

    url: str
    tenant: str
    directory: str
    lease: float
    concurrency: int

    def text(self) -> str:
        """As one text."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> WorkerConfig:
        """What `text` gave."""
        return WorkerConfig(**json.loads(text))
