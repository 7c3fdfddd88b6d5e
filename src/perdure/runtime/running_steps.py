"""The steps of an attempt that run now, and which of them the log knows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from perdure.model.errors import PerdureError, Suspended
from perdure.model.events import NewEvent

ANNOUNCE_AFTER = 0.1
"""Seconds a step runs before `node_started` is written."""


class RunningSteps:
    """By key: when each began, on the monotonic clock, as long as the log does not know of it.

    record: writes events under the lease of the attempt. cancel_with_attempt: has a task cancelled when the attempt stops.
    """

    def __init__(
        self,
        record: Callable[[Sequence[NewEvent]], Coroutine[Any, Any, int]],
        cancel_with_attempt: Callable[[asyncio.Task[Any]], None],
    ) -> None:
        self._record = record
        self._cancel_with_attempt = cancel_with_attempt
        self._began: dict[str, float] = {}

    def began(self, key: str) -> float:
        """The function of a step is about to be called. Returns the time, on the monotonic clock."""
        began = self._began[key] = time.monotonic()
        return began

    def ended(self, key: str) -> None:
        """The function of a step has returned or raised."""
        self._began.pop(key, None)

    def announce(self, now: float) -> None:
        """Write `node_started` of those that have run for a while."""
        for key in [key for key, began in self._began.items() if now - began >= ANNOUNCE_AFTER]:
            self._began[key] = float("inf")  # once
            self._cancel_with_attempt(asyncio.get_running_loop().create_task(self._announce(key)))

    async def _announce(self, key: str) -> None:
        if self._began.pop(key, None) is None:
            return  # it ended before this task began: its end is in the log already
        with contextlib.suppress(Suspended, PerdureError):  # the step itself will find out
            await self._record([NewEvent("node_started", json.dumps({"key": key}))])
