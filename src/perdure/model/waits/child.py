"""The wait for the end of children: of one, or of all of a gather."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from perdure.model.explanation import Move, Situation, Why
from perdure.model.ids import short_id
from perdure.model.jobs import Wait
from perdure.model.timing import when
from perdure.model.waits.base import Facts, WaitFault, WaitKind, WaitLine


class ChildWait(WaitKind[object, datetime]):
    """Its subject is a child's id, or a digest of the ids of a gather. The jobs that it still waits for are in `awaited_jobs`;
    the end of the last one answers it. What the children returned is read from them, not from the wait."""

    name = "child"
    noun = "a wait for a child"

    async def answer(self, store: object, job_id: UUID, wait: Wait) -> datetime | None:
        """See `WaitKind.answer`. When it was answered."""
        del store, job_id
        return wait.answered_at

    def recorded(self, answer: datetime) -> dict[str, str]:
        """See `WaitKind.recorded`."""
        return {"ended": answer.isoformat()}

    def line(self, wait: Wait, seen: Situation) -> WaitLine | None:
        """See `WaitKind.line`."""
        awaited = [one for one in seen.awaited if one.key == wait.key]
        if not awaited:
            return None
        total = awaited[0].of
        named = ", ".join(f"…{short_id(one.child_id)} {one.kind}, which is {one.status}" for one in awaited)
        more = f", and {total - len(awaited):,} more" if total > len(awaited) else ""
        short = f"'{wait.key}' ends with {total:,} {'child' if total == 1 else 'children'}: {named}{more}"
        moves = tuple(
            Move(f"see why …{short_id(one.child_id)} has not ended", f"perdure jobs explain {short_id(one.child_id)}")
            for one in awaited[:1]
        )
        fact = {"key": wait.key, "waiting_for": total, "children": [str(one.child_id) for one in awaited]}
        return WaitLine(Why.CHILDREN, f"It waits for children: {short}.", short, "children", fact, moves)

    def woke(self, wait: Wait, seen: Situation) -> str | None:
        """See `WaitKind.woke`."""
        if wait.answered_at is None:
            return None
        return f"The children of '{wait.key}' ended {when(wait.answered_at, seen.now)}, "

    def fault(self, wait: Wait, facts: Facts) -> WaitFault | None:
        """See `WaitKind.fault`."""
        rows = [row for row in facts.rows("awaited") if row["key"] == wait.key]
        live = sum(not row["ended"] for row in rows)
        if live and wait.answered_at is not None:
            return WaitFault(f"its wait for '{wait.key}' is answered, and {live} of its children have not ended", None)
        if not live and wait.answered_at is None:
            return WaitFault(f"the children of '{wait.key}' have ended, and its wait is not answered", facts.now)
        return None


CHILD = ChildWait()
