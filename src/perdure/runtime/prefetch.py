"""How many jobs to claim at once: about one for each free slot where handlers are slow, hundreds more where they are fast."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from uuid import UUID

from perdure.runtime.lease import LeasedJob

MAX_AHEAD = 1000
"""Most jobs that are claimed beyond the free slots."""
LOOK_AHEAD = 0.05
"""Seconds of work to keep buffered."""

_WEIGHT = 0.1
"""Of the newest attempt in the mean."""


class Prefetch:
    """Measures how long attempts take, and says how many jobs must be buffered to keep the slots busy during a claim."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._mean: dict[str, float] = {}
        self._typical: float | None = None

    def observe(self, kind: str, seconds: float) -> None:
        """An attempt of this kind took that many seconds."""
        before = self._mean.get(kind)
        self._mean[kind] = seconds if before is None else before + _WEIGHT * (seconds - before)
        # rises at once and falls slowly, an upper bound like a p95: one slow kind is enough to buffer less
        typical = self._typical
        if typical is None or seconds > typical:
            self._typical = seconds
        else:
            self._typical = typical + 0.02 * (seconds - typical)

    def mean(self, kind: str) -> float:
        """Average seconds of a kind's attempts; 0 before the first."""
        return self._mean.get(kind, 0.0)

    def wanted(self, *, running: int, buffered: int, longest: float) -> int:
        """How many more to claim now: 0 while the buffer is over half full, so that claims come in batches.

        longest: seconds that the longest running attempt has taken so far; it counts before it ends.
        """
        free = max(0, self._concurrency - running)
        target = free + self._ahead(longest)
        missing = target - buffered
        return missing if missing > 0 and buffered <= target // 2 else 0

    def _ahead(self, longest: float) -> int:
        if self._typical is None:
            return 0
        expected = max(self._typical, longest, 1e-5)
        return min(MAX_AHEAD, int(self._concurrency * LOOK_AHEAD / expected))


class Buffer:
    """Claimed jobs that wait for a slot: the most urgent first, then in the order in which they were claimed."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[LeasedJob]] = {}
        """By priority, highest first."""
        self.number = 0
        """How many jobs it holds."""

    def put_all(self, jobs: Sequence[LeasedJob]) -> None:
        """Add jobs, in this order."""
        for leased in jobs:
            priority = leased.claimed.priority
            line = self._lines.get(priority)
            if line is None:
                self._lines[priority] = line = deque()
                self._lines = dict(sorted(self._lines.items(), reverse=True))
            line.append(leased)
        self.number += len(jobs)

    def ids(self) -> list[UUID]:
        """The jobs in the order in which they start."""
        return [leased.claimed.id for line in list(self._lines.values()) for leased in list(line)]

    def take(self) -> LeasedJob | None:
        """Remove and return the next one to start; None if there is none."""
        for line in self._lines.values():
            if line:
                self.number -= 1
                return line.popleft()
        return None

    def remove(self, leased: LeasedJob) -> bool:
        """Remove this one; False if it is not here."""
        line = self._lines.get(leased.claimed.priority)
        if line is None or leased not in line:
            return False
        line.remove(leased)
        self.number -= 1
        return True

    def take_all(self, *, older_than: float | None = None) -> list[LeasedJob]:
        """Remove and return all, or those that were put here before `older_than` (monotonic seconds)."""
        taken: list[LeasedJob] = []
        for priority, line in self._lines.items():
            taken += [leased for leased in line if older_than is None or leased.since < older_than]
            self._lines[priority] = deque(
                leased for leased in line if older_than is not None and leased.since >= older_than
            )
        self.number -= len(taken)
        return taken
