"""The configuration of a child process of the crash tests."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class ChildConfig:
    """What a child is to do.

    place: the directory for the files it writes. chores: seconds between two rounds of chores, None for the default. kill_at: the
    point at which it kills itself. stubborn: it ignores that a lease is lost; only the database refuses its writes. fresh: a new
    interpreter instead of a fork. extra_migrations: SQL of migrations after the real ones. release: of its code, see `releases`.
    """

    role: Literal["worker", "producer", "sender", "migrator", "pruner", "rerunner"]
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
    release: int = 1

    def text(self) -> str:
        """As JSON text."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> "ChildConfig":
        """The configuration that `text` wrote."""
        given: dict[str, Any] = {}
        for name, value in json.loads(text).items():
            given[name] = tuple(value) if isinstance(value, list) else value
        return ChildConfig(**given)
