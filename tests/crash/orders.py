"""What a child of the crash tests is told."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Orders:
    """What a child is to do.

    place: the directory for its marks and effects. chores: seconds between two reapings, None as ever. kill_at: the point at
    which it kills itself. stubborn: it never notices that a lease is lost, only the database does. fresh: an interpreter of
    its own rather than a fork. extra_migrations: SQL of migrations that come after the real ones.
    """

    role: Literal["worker", "producer", "migrator", "pruner"]
    url: str
    place: str
    queues: tuple[str, ...] = ("default",)
    lease: float = 1.5
    linger: float = 0.5
    concurrency: int = 10
    drain_timeout: float = 30.0
    chores: float | None = 0.2
    kill_at: str | None = None
    stubborn: bool = False
    fresh: bool = False
    extra_migrations: tuple[str, ...] = ()

    def text(self) -> str:
        """As one text."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> "Orders":
        """What `text` gave."""
        given: dict[str, Any] = {}
        for name, value in json.loads(text).items():
            given[name] = tuple(value) if isinstance(value, list) else value
        return Orders(**given)
