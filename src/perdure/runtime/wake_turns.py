"""When a worker wakes the jobs that wait for its code."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

MOST = 16
"""Rounds between two times that a worker wakes the same job."""


class WakeTurns:
    """Of one worker. A job that it wakes may be claimed by a worker whose code does not fit, as long as its own slots are taken.
    So it is woken again after 2 rounds, then after 4, and so on."""

    def __init__(self) -> None:
        self._round = 0
        self._woken: dict[UUID, tuple[int, int]] = {}
        """How often, and the round from which on it is woken again."""

    @property
    def remembered(self) -> int:
        """Jobs that it woke a short time ago."""
        return len(self._woken)

    def pick(self, waiting: Iterable[UUID]) -> list[UUID]:
        """Those of the waiting jobs that are woken in this round."""
        self._round += 1
        self._woken = {
            id: (times, due) for id, (times, due) in self._woken.items() if due + _pause(times) > self._round
        }
        picked = [id for id in waiting if self._woken.get(id, (0, 0))[1] <= self._round]
        for id in picked:
            times = self._woken.get(id, (0, 0))[0] + 1
            self._woken[id] = times, self._round + _pause(times)
        return picked


def _pause(times: int) -> int:
    return MOST if times > 4 else 2**times
