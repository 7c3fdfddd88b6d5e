"""Resolves an approval from its id, a suffix of it, or its job."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from perdure.model.errors import AmbiguousId, ApprovalNotFound
from perdure.model.ids import short_id
from perdure.store.errors import ambiguous_id, approval_not_found
from perdure.store.rows import Row

_SHOWN = 3
_TITLE = 40


def the_approval(text: str, end: UUID | str, rows: Sequence[Row]) -> UUID | None:
    """The one approval among `rows`, all of whose own ids, or whose jobs' while they are open, end in `end`; None if none is.

    Raises AmbiguousId.
    """
    if len(rows) < 2:
        return _uuid(rows[0]["id"]) if rows else None
    jobs = {_uuid(row["job_id"]) for row in rows}
    job_id = jobs.pop()
    if jobs or not job_id.hex.endswith(end if isinstance(end, str) else end.hex):
        raise ambiguous_id(text)
    asked = [f"…{short_id(_uuid(row['id']))} '{_brief(row['title'])}'" for row in rows[:_SHOWN]]
    raise AmbiguousId(
        f"job …{short_id(job_id)} has several open approvals: {', '.join(asked)}{', ...' if len(rows) > _SHOWN else ''}",
        hint=f"name one of them; perdure approvals ls --job {short_id(job_id)} shows them all",
    )


def last_of_job(text: str, rows: Sequence[Row]) -> UUID:
    """The latest approval of the one job among `rows`. Raises AmbiguousId, ApprovalNotFound."""
    if not rows:
        raise approval_not_found(text)
    if len(rows) > 1:
        raise ambiguous_id(text)
    if rows[0]["id"] is None:
        job = short_id(_uuid(rows[0]["job_id"]))
        raise ApprovalNotFound(
            f"job …{job} has requested no approval so far", hint=f"perdure jobs explain {job} says what it waits for"
        )
    return _uuid(rows[0]["id"])


def _uuid(id: UUID | str) -> UUID:
    return id if isinstance(id, UUID) else UUID(id)


def _brief(title: str) -> str:
    line = " ".join(title.split())
    return line if len(line) <= _TITLE else line[: _TITLE - 1] + "…"
