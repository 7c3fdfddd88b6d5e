"""Rows of children into records, for both dialects."""

from __future__ import annotations

import json
from uuid import UUID

from perdure.model.batches import BATCH_KEY, BatchJob, subject_of
from perdure.model.children import ChildState, TreeNode
from perdure.model.events import NewEvent
from perdure.model.explanation import Awaited
from perdure.model.states import Status
from perdure.model.waits import CHILD
from perdure.store.rows import Codec, Row


def child_of(row: Row, codec: Codec) -> ChildState:
    """A row of `read_children`."""
    return ChildState(
        id=codec.uuid(row["id"]),
        kind=row["kind"],
        parent_id=None if row["parent_id"] is None else codec.uuid(row["parent_id"]),
        status=Status(row["status"]),
        result=row["result"],
        error=row["error"],
        error_kind=row["error_kind"],
        pruned=bool(row["pruned"]),
    )


def batch_job_of(row: Row, codec: Codec) -> BatchJob:
    """A row of `list_children`."""
    return BatchJob(codec.uuid(row["id"]), row["kind"], Status(row["status"]))


def batch_opened(callback_id: UUID) -> NewEvent:
    """The event by which the callback of a batch begins to wait for its jobs."""
    payload = {"key": BATCH_KEY, "kind": CHILD.name, "subject": subject_of(callback_id)}
    return NewEvent("wait_started", json.dumps(payload))


def node_of(row: Row, codec: Codec) -> TreeNode:
    """A row of `child_tree`."""
    return TreeNode(
        id=codec.uuid(row["id"]),
        parent_id=None if row["parent_id"] is None else codec.uuid(row["parent_id"]),
        depth=row["depth"],
        kind=row["kind"],
        goal=row["goal"],
        status=Status(row["status"]),
        created_at=codec.time(row["created_at"]),
        finished_at=None if row["finished_at"] is None else codec.time(row["finished_at"]),
        error=row["error"],
    )


def awaited_of(row: Row, codec: Codec) -> Awaited:
    """A row of `awaited_children`."""
    return Awaited(row["key"], codec.uuid(row["child_id"]), row["kind"], Status(row["status"]), row["total"])
