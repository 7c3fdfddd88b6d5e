"""Effects: what commits together with a job's events, or with the end of its attempt. An effect is the name of a statement of the
store and its row.

The store runs the effects of many calls together, each statement once, and only for jobs whose lease is live. It adds the job and
the time to the row, whose other fields have the names of the statement's parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from perdure.model.cost import ZERO
from perdure.model.jobs import Wait

LOCK_ORDER = ("patch_state", "close_waits", "open_wait")
"""The statements, in the order in which they run, which is that of their locks. A new effect is one more statement in
`leases/effects.sql` of both dialects, its name here, and a function that makes it."""


class Effect(NamedTuple):
    """One row for a named statement."""

    statement: str
    row: Mapping[str, Any]


def patch_state(
    *,
    checkpoint: str | None = None,
    progress: float | None = None,
    progress_text: str | None = None,
    tokens: int = 0,
    cost: Decimal = ZERO,
) -> Effect:
    """Change the job's state: None leaves a field as it is; tokens and cost are added. checkpoint: JSON text."""
    row = {
        "checkpoint": checkpoint,
        "progress": progress,
        "progress_text": progress_text,
        "tokens": tokens,
        "cost": cost,
    }
    return Effect("patch_state", row)


def open_wait(wait: Wait) -> Effect:
    """The job waits for something. Opened again for the same subject, a wait keeps its answer."""
    row = {"key": wait.key, "kind": wait.kind, "subject_id": wait.subject_id, "until": wait.until}
    return Effect("open_wait", row)


def close_wait(kind: str, key: str) -> Effect:
    """The job no longer waits under this kind and key; what is not open is ignored."""
    return Effect("close_waits", {"kind": kind, "key": key})
