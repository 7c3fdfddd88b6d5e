"""How many jobs to claim ahead: about the free slots for long handlers, hundreds for microsecond ones."""

from __future__ import annotations

import heapq

from perdure.runtime.lease import Held

MAX_AHEAD = 500
LOOK_AHEAD = 0.05
"""Seconds of work to keep buffered."""

_WEIGHT = 0.1


class Prefetch:
    """Learns how long attempts take, and from that how much buffer keeps the slots busy while a claim is under way."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._mean: dict[str, float] = {}
        self._typical: float | None = None

    def observe(self, kind: str, seconds: float) -> None:
        """An attempt of this kind took so long."""
        before = self._mean.get(kind)
        self._mean[kind] = seconds if before is None else before + _WEIGHT * (seconds - before)
        # rises at once and falls slowly: an upper bound in the manner of a p95, so that one long kind stops the hoarding
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
    """Claimed jobs that wait for a slot: the most urgent first, then as they came."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Held]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, held: Held) -> None:
        """Add a job."""
        self._count += 1
        heapq.heappush(self._heap, (-held.claimed.priority, self._count, held))

    def take(self) -> Held:
        """Remove and return the next one to start."""
        return heapq.heappop(self._heap)[2]

    def remove(self, held: Held) -> bool:
        """Take this one out; False if it is not here."""
        kept = [entry for entry in self._heap if entry[2] is not held]
        found = len(kept) < len(self._heap)
        if found:
            heapq.heapify(kept)
            self._heap = kept
        return found

    def take_all(self, *, older_than: float | None = None) -> list[Held]:
        """Remove and return all, or those that were put here before `older_than` (monotonic seconds)."""
        taken = [e[2] for e in self._heap if older_than is None or e[2].since < older_than]
        if taken:
            gone = set(map(id, taken))
            self._heap = [e for e in self._heap if id(e[2]) not in gone]
            heapq.heapify(self._heap)
        return taken
