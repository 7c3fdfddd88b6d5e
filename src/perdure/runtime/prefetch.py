"""How many jobs to claim ahead: about the free slots for long handlers, hundreds for microsecond ones."""

from __future__ import annotations

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

    def wanted(self, *, running: int, buffered: int) -> int:
        """How many more to claim now: 0 while the buffer is over half full, so that claims come in batches."""
        free = self._concurrency - running
        ahead = (
            0
            if self._typical is None
            else min(MAX_AHEAD, int(self._concurrency * LOOK_AHEAD / max(self._typical, 1e-5)))
        )
        target = max(0, free) + ahead
        missing = target - buffered
        return missing if missing > 0 and buffered <= target // 2 else 0
