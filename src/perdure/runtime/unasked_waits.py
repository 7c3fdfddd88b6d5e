"""Waits that are over and that the handler does not ask for any more, as its code has changed: their answers are recorded before
the job is suspended, or the database would wake it for them again and again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

from perdure.model.effects import Effect
from perdure.model.jobs import Wait
from perdure.model.waits import CODE, QUESTION, kind_of
from perdure.runtime.history import History, KindAndKey
from perdure.store.protocol import Store


def unasked_waits(history: History, opened: Collection[KindAndKey], is_late: Callable[[Wait], bool]) -> list[Wait]:
    """The waits that are over and were not asked for in this attempt. opened: those that a branch waits for."""
    return [
        wait
        for of, wait in history.rows.items()
        if of not in opened and (wait.answered_at is not None or is_late(wait)) and not _asked(history, *of)
    ]


async def as_recorded(store: Store, job_id: UUID, wait: Wait) -> tuple[dict[str, Any], tuple[Effect, ...]]:
    """The payload of `wait_completed` of one that is over, and what commits with it."""
    kind = kind_of(wait.kind)
    answer = await kind.answer(store, job_id, wait) if kind.answerable else None
    payload = {"key": wait.key, "kind": wait.kind} | kind.recorded(answer)
    return payload, kind.closes(wait, answered=answer is not None)


def _asked(history: History, kind: str, key: str) -> bool:
    if kind == CODE.name:
        return True
    if kind == QUESTION.name:  # asked by the tool
        kind, key = "tool", key.rpartition("?")[0]
    return kind not in history.unmet.get(key, ())
