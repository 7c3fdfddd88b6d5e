"""The wait for code that fits what is recorded: the handler calls something else than the log has."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from perdure.model.explanation import Move, Situation, Why
from perdure.model.jobs import Wait
from perdure.model.waits.base import WaitKind, WaitLine

PREFIX = "code:"
"""Of its keys; the version of the code that did not fit follows."""


class CodeWait(WaitKind[object, datetime]):
    """A row for each version of the code that does not fit; its subject says what does not. A worker of another version answers
    all of them, and so does `retry-now`. While one is open, no other wait wakes the job."""

    name = "code"
    noun = "a wait for code that fits"

    async def answer(self, store: object, job_id: UUID, wait: Wait) -> datetime | None:
        """See `WaitKind.answer`."""
        del store, job_id
        return wait.answered_at

    def line(self, wait: Wait, seen: Situation) -> WaitLine | None:
        """See `WaitKind.line`. One line for all of a job."""
        waits = [other for other in seen.job.waits if other.kind == self.name]
        if wait is not waits[-1]:
            return None
        versions = [other.key.removeprefix(PREFIX) for other in waits]
        short = f"{wait.subject_id} (the code of version {' and '.join(versions)})"
        sentence = (
            f"It waits for code that fits: {short}. It goes on by itself when a worker of another version serves "
            f"'{seen.job.kind}', or at once by retry-now."
        )
        retry = Move("run it again with the code of today", f"perdure jobs retry-now {seen.job.short_id}")
        from_there = Move("keep what was recorded in a new job", f"perdure jobs fork {seen.job.short_id}")
        return WaitLine(
            Why.CODE,
            sentence,
            short,
            "code",
            {"difference": wait.subject_id, "versions": versions},
            (retry, from_there),
        )


CODE = CodeWait()
