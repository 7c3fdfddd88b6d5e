"""Where a process begins that is more than a fork: `python -m tests.crash.child ORDERS`, ORDERS as JSON.

The clocks are bent before anything of perdure is imported. All other children come from the nursery.
"""

import datetime as dt
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Orders:
    """What a child is to do.

    place: the directory for its marks and effects. chores: seconds between two reapings. kill_at: the point at which it
    kills itself. stubborn: it never notices that a lease is lost, only the database does. skew: seconds by which its clocks
    are wrong. fresh: an interpreter of its own rather than a fork. extra_migrations: SQL of migrations that come after the
    real ones.
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
    skew: float = 0.0
    fresh: bool = False
    extra_migrations: tuple[str, ...] = ()

    def text(self) -> str:
        """As the one argument of a child."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> "Orders":
        """What `text` gave."""
        given: dict[str, Any] = {}
        for name, value in json.loads(text).items():
            given[name] = tuple(value) if isinstance(value, list) else value
        return Orders(**given)


def bend_clocks(seconds: float) -> None:
    """Every clock that tells the time of day is wrong by that much; monotonic clocks are right."""
    real, real_ns = time.time, time.time_ns
    straight = dt.datetime

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, straight)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, straight)

    class Bent(straight, metaclass=Meta):  # type: ignore[valid-type,misc]
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return straight.now(tz) + dt.timedelta(seconds=seconds)

        @classmethod
        def utcnow(cls) -> Any:
            return straight.now(dt.UTC).replace(tzinfo=None) + dt.timedelta(seconds=seconds)

    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)
    dt.datetime = Bent  # type: ignore[misc]


def main() -> None:
    orders = Orders.read(sys.argv[1])
    if orders.skew:
        bend_clocks(orders.skew)
    from tests.crash import apps

    apps.obey(orders)


if __name__ == "__main__":
    main()
