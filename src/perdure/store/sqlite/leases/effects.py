"""What commits together with the events of an attempt, or with its end."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from perdure.store.sqlite.engine.statements import SQL

Effect = tuple[str, dict[str, Any]]
"""A named statement, and its values but `job_id` and `now`."""


class EffectBatch:
    """The effects of many calls, each statement run once for all of them. Those of one job keep their order from call to call."""

    def __init__(self, conn: sqlite3.Connection, now: int) -> None:
        self._conn = conn
        self._now = now
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._jobs: set[str] = set()

    def add(self, job_id: str, effects: Sequence[Effect]) -> None:
        """Take the effects of one call."""
        if job_id in self._jobs:
            self.write()
        self._jobs.add(job_id)
        for statement, values in effects:
            self._rows.setdefault(statement, []).append({**values, "job_id": job_id, "now": self._now})

    def write(self) -> None:
        """Run what was taken so far."""
        for statement, rows in self._rows.items():
            self._conn.executemany(SQL[statement], rows)
        self._rows.clear()
        self._jobs.clear()
