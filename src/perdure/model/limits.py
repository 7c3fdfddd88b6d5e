"""A concurrency key, its maximum, and who holds its slots."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

MOST_WAITING = 10_000
"""Jobs that wait for a slot are counted up to this many."""
SHOWN_HOLDERS = 5


@dataclass(frozen=True, slots=True)
class Rate:
    """How many jobs of a concurrency key start in any minute.

    per_minute: at most so many. started: how many did in the last minute. set_by_hand: whether an operator has set it; that wins
    over code. next_at: when the next one may start (UTC); None: now; None in lists.
    """

    per_minute: int
    started: int
    set_by_hand: bool
    next_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """How many jobs of a concurrency key run, and may.

    max: None where neither an operator nor code says so. in_use: live leases that hold a slot. waiting: jobs that are held
    because the key was full, or its rate used up, counted up to MOST_WAITING. set_by_hand: whether `max` was set by an operator;
    it wins over code. holders: the jobs that hold slots, the oldest first, at most SHOWN_HOLDERS; empty in lists. rate: None
    where any number may start.
    """

    key: str
    max: int | None
    in_use: int
    waiting: int
    set_by_hand: bool
    holders: tuple[UUID, ...] = ()
    rate: Rate | None = None

    @property
    def full(self) -> bool:
        """Whether no slot is free."""
        return self.max is not None and self.in_use >= self.max
