"""Unique keys of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perdure.model.timing import Duration

OnConflict = Literal["return", "replace", "refuse"]


@dataclass(frozen=True, slots=True)
class Unique:
    """At most one job of a kind has such a key at a time.

    period: for so long after it was enqueued, whatever becomes of it; seconds or text. None: while it is active, that is until it
    ends. on_conflict: what enqueueing does where another job has the key: "return" returns that job; "replace" (debounce) gives
    it the new input and time if it has not started, and else stores a new job, which takes the key over; "refuse" (throttle)
    raises UniqueConflict. "replace" goes without a period.
    """

    key: str
    period: Duration | None = None
    on_conflict: OnConflict = "return"
