"""What a worker is told when it is started."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

ENTRY = "perdure.chaos.worker:obey"
"""What a worker's process does."""
LOST = "lost"
"""What a worker says when it learns that a lease is no longer its own."""
LINGER = 0.15
CHORES = 0.3
DRAIN = 1.0


@dataclass(frozen=True)
class Orders:
    """Its database, whose jobs, the directory of the witness, and how it works."""

    url: str
    tenant: str
    place: str
    lease: float
    concurrency: int

    def text(self) -> str:
        """As one text."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> Orders:
        """What `text` gave."""
        return Orders(**json.loads(text))
