"""Children: jobs that a job has spawned, as their parent and as people look at them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from perdure.model.ids import short_id
from perdure.model.states import Status

MOST_IN_TREE = 1000
"""Jobs that a tree shows at most."""


@dataclass(frozen=True, slots=True)
class ChildState:
    """A job as the one that waits for it sees it. result: JSON text, None before the end. pruned: its result was pruned."""

    id: UUID
    kind: str
    parent_id: UUID | None
    status: Status
    result: str | None
    error: str | None
    error_kind: str | None
    pruned: bool


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A job in the tree below another. depth: 0 is the job that was asked for. parent_id: None where it has no parent.

    error: why it failed. Times are UTC.
    """

    id: UUID
    parent_id: UUID | None
    depth: int
    kind: str
    goal: str | None
    status: Status
    created_at: datetime
    finished_at: datetime | None
    error: str | None

    @property
    def short_id(self) -> str:
        """The last 8 hex digits of the id."""
        return short_id(self.id)
