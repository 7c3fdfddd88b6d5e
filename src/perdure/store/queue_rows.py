"""Pauses of queues: rows into records, both dialects alike."""

from __future__ import annotations

from perdure.model.queues import QueuePause
from perdure.store.rows import Codec, Row


def pause_of(row: Row, codec: Codec) -> QueuePause:
    """A row of `queue_pauses`."""
    return QueuePause(
        codec.uuid(row["id"]),
        row["queue"],
        codec.time(row["paused_at"]),
        row["paused_by"],
        row["paused_via"],
        row["reason"],
        None if row["resumed_at"] is None else codec.time(row["resumed_at"]),
        row["resumed_by"],
        row["resumed_via"],
        row["resumed_reason"],
    )
