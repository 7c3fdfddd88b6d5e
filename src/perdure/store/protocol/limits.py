"""The limits of concurrency keys. Part of `protocol.Store`."""

from __future__ import annotations

from typing import Protocol

from perdure.model.limits import Limit


class LimitStore(Protocol):
    """How many jobs of a concurrency key may run at a time, as operators set it, and how many do."""

    async def list_limits(self, *, limit: int = 1000) -> list[Limit]:
        """The keys that have live leases or were set by hand, in their order, without holders."""
        ...

    async def get_limit(self, key: str) -> Limit:
        """One key with the jobs that hold its slots; zeros for a key that no job has."""
        ...

    async def set_limit(self, key: str, max: int, *, by: str) -> None:
        """From now on at most `max` jobs of this key run; this wins over code. 0: none. A lower one ends no job: it holds when so
        many have ended."""
        ...

    async def unset_limit(self, key: str) -> bool:
        """Let code say again how many jobs of this key run; False if nothing was set."""
        ...

    async def set_rate(self, key: str, per_minute: int | None, *, by: str) -> None:
        """From now on at most so many jobs of this key start in any minute; this wins over code. None: as code says."""
        ...

    async def say_rate(self, key: str, per_minute: int) -> None:
        """What code says of the rate of a key: what was said last counts. Nothing is written where it is the same."""
        ...
