"""What commits together with the events of an attempt, or with its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from perdure.model.effects import LOCK_ORDER, Effect
from perdure.store.postgres.engine.hot_connection import RunStatement


async def run_effects(run: RunStatement, effects: Iterable[tuple[UUID, Effect]]) -> None:
    """Run each statement once for the effects of all jobs, which come in lock order.

    A statement changes a row once: what a job changes a second time is written by another run of the statement.
    """
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for job_id, (statement, row) in effects:
        rows.setdefault(statement, []).append({"job_id": job_id, **row})
    for statement in sorted(rows, key=LOCK_ORDER.index):
        for portion in _without_repeats(rows[statement]):
            await run(statement, **{column: [row[column] for row in portion] for column in portion[0]})


def _without_repeats(rows: list[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The rows in portions, in none of which two are of the same job and key, or (of a row without a key) id."""
    portions: list[list[Mapping[str, Any]]] = []
    seen: dict[tuple[UUID, object], int] = {}
    for row in rows:
        of = (row["job_id"], row.get("key", row.get("id")))
        turn = seen[of] = seen.get(of, -1) + 1
        if turn == len(portions):
            portions.append([])
        portions[turn].append(row)
    return portions
