"""The wait for a time: `ctx.sleep`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from perdure.model.explanation import Situation, Why
from perdure.model.jobs import Wait
from perdure.model.timing import when
from perdure.model.waits.base import WaitKind, WaitLine


class Timer(WaitKind[object, datetime]):
    """Its `until` wakes the job. SQL that sets `answered_at` ends it early."""

    name = "timer"
    noun = "a sleep"
    answerable = False

    async def answer(self, store: object, job_id: UUID, wait: Wait) -> datetime | None:
        """See `WaitKind.answer`."""
        del store, job_id
        return wait.answered_at

    def line(self, wait: Wait, seen: Situation) -> WaitLine | None:
        """See `WaitKind.line`."""
        if wait.until is None:
            return None
        short = f"timer '{wait.key}' ends {when(wait.until, seen.now)}"
        return WaitLine(Why.SLEEPING, f"It sleeps: {short}.", short, "timers", {"key": wait.key, "until": wait.until})

    def ended(self, wait: Wait, now: datetime) -> str:
        """See `WaitKind.ended`."""
        return f"Timer '{wait.key}' ended {when(wait.until, now)}, "


TIMER = Timer()
