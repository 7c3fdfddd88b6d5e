"""Where a process begins that is more than a fork: `python -m tests.crash.child ORDERS`, ORDERS as JSON.

The clocks are bent before anything of perdure is imported. All other children come from the nursery.
"""

import datetime
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
    are wrong. fresh: an interpreter of its own rather than a fork. extra_migrations: SQL of migrations shipped after the real ones.
    """

    role: Literal["worker", "producer", "migrator"]
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
        given = json.loads(text)
        return Orders(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def bend_clocks(seconds: float) -> None:
    """Every clock that tells the time of day is wrong by that much; monotonic clocks are right."""
    real, real_ns = time.time, time.time_ns
    straight = datetime.datetime

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, straight)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, straight)

    class Bent(straight, metaclass=Meta):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return straight.now(tz) + datetime.timedelta(seconds=seconds)

        @classmethod
        def utcnow(cls) -> Any:
            return straight.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(seconds=seconds)

    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)
    datetime.datetime = Bent  # type: ignore[misc]


def main() -> None:
    orders = Orders.read(sys.argv[1])
    if orders.skew:
        bend_clocks(orders.skew)
    from tests.crash import apps

    apps.obey(orders)


if __name__ == "__main__":
    main()
