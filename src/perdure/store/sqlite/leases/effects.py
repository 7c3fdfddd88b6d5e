"""What commits together with the events of an attempt, or with its end."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from perdure.model.effects import LOCK_ORDER, Effect
from perdure.store.sqlite.engine.codec import stored
from perdure.store.sqlite.engine.statements import SQL


class EffectBatch:
    """The effects of many calls, each statement run once for all of them. Those of one job keep their order from call to call."""

    def __init__(self, conn: sqlite3.Connection, now: int) -> None:
        self._conn = conn
        self._now = now
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._jobs: set[str] = set()

    def add(self, job_id: str, tenant_id: str, effects: Sequence[Effect]) -> None:
        """Take the effects of one call."""
        if not effects:
            return
        if job_id in self._jobs:
            self.write()
        self._jobs.add(job_id)
        known = {"job_id": job_id, "tenant_id": tenant_id, "now": self._now}
        for statement, row in effects:
            values = {name: stored(value) for name, value in row.items()}
            self._rows.setdefault(statement, []).append(values | known)

    def write(self) -> None:
        """Run what was taken so far."""
        for statement in sorted(self._rows, key=LOCK_ORDER.index):
            self._conn.executemany(SQL[statement], self._rows[statement])
        self._rows.clear()
        self._jobs.clear()
