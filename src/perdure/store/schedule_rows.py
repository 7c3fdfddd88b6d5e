"""Schedules: rows into records, and what a firing does; both dialects alike."""

from __future__ import annotations

import json
from typing import Any

from perdure.model.schedules import Overlap, Schedule, Skipped
from perdure.store.rows import Codec, Row

_TIMES = ("at", "next_at", "paused_at", "last_at", "skipped_at")

_SAME = (
    *(
        "id",
        "kind",
        "cron",
        "every",
        "timezone",
        "queue",
        "priority",
        "max_retries",
        "concurrency_key",
        "max_concurrent",
    ),
    *("catch_up", "jitter", "set_by"),
)


def schedule_of(row: Row, codec: Codec) -> Schedule:
    """A row of `schedules`."""
    times = {name: None if row[name] is None else codec.time(row[name]) for name in _TIMES}
    values: dict[str, Any] = {name: row[name] for name in _SAME} | times
    return Schedule(
        **values,
        payload=json.loads(row["payload"]),
        anchor=codec.time(row["anchor"]),
        overlap=Overlap(row["overlap"]),
        last_job_id=None if row["last_job_id"] is None else codec.uuid(row["last_job_id"]),
        skipped=None if row["skipped"] is None else Skipped(row["skipped"]),
        created_at=codec.time(row["created_at"]),
        updated_at=codec.time(row["updated_at"]),
    )


def is_as_read(row: Row | None, schedule: Schedule, codec: Codec) -> bool:
    """Whether a locked row is still what a firing was made of."""
    if row is None or row["next_at"] is None:
        return False
    return codec.time(row["next_at"]) == schedule.next_at and codec.time(row["updated_at"]) == schedule.updated_at


def waits_for_last(overlap: Overlap, *, live: bool) -> bool:
    """Whether a firing may not start a job while that of the last firing has not ended."""
    return live and overlap is not Overlap.ENQUEUE
