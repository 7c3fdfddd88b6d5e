"""The registry of the kinds of waits, and what follows from several waits together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from perdure.model.explanation import Situation, Why
from perdure.model.jobs import Wait
from perdure.model.states import Status
from perdure.model.timing import when
from perdure.model.waits.approval import APPROVAL
from perdure.model.waits.base import WaitKind, WaitLine
from perdure.model.waits.child import CHILD
from perdure.model.waits.code import CODE
from perdure.model.waits.message import MESSAGE
from perdure.model.waits.question import QUESTION
from perdure.model.waits.signal import SIGNAL
from perdure.model.waits.timer import TIMER

_KINDS: dict[str, WaitKind[Any, Any]] = {
    kind.name: kind for kind in (TIMER, APPROVAL, QUESTION, SIGNAL, CODE, CHILD, MESSAGE)
}


def register(kind: WaitKind[Any, Any]) -> Callable[[], None]:
    """Register a kind; return a function that removes it again. Raises ValueError if its name is taken."""
    if kind.name in _KINDS:
        raise ValueError(f"there is a kind of wait '{kind.name}' already")
    _KINDS[kind.name] = kind

    def unregister() -> None:
        _KINDS.pop(kind.name, None)

    return unregister


def kind_of(name: str) -> WaitKind[Any, Any]:
    """The kind of this name. A kind that is not registered, as of a later version, is parked until its row is answered."""
    return _KINDS.get(name) or _Unknown(name)


def suspended_status(kinds: Iterable[WaitKind[Any, Any]]) -> Status:
    """The status of a job that is suspended on waits of these kinds."""
    asks = any(kind.status is Status.WAITING_FOR_APPROVAL for kind in kinds)
    return Status.WAITING_FOR_APPROVAL if asks else Status.PARKED


def opened_wait(type: str, field: Callable[[str], Any]) -> Wait | None:
    """The wait that an event of this type opens, None if it opens none; `field` reads a field of its payload, None if missing.

    Raises ValueError or TypeError for fields that no such event has.
    """
    if not any(kind.opened_by == type for kind in _KINDS.values()):
        return None
    key, name = field("key"), field("kind")
    if not isinstance(key, str) or not isinstance(name, str):
        raise ValueError(f"{type} opens a wait, and lacks its key or its kind")
    until, subject = field("until"), field(kind_of(name).subject_field)
    moment = None if until is None else datetime.fromisoformat(until)
    return Wait(key, name, moment, None if subject is None else str(subject))


def answers(type: str, field: Callable[[str], Any], wait: Wait) -> bool:
    """Whether an event of this type, with the key of this wait, answers it. field: reads a field of its payload, None if
    missing."""
    kind = kind_of(wait.kind)
    return kind.answered_by == type and field(kind.subject_field) in (None, wait.subject_id)


class _Unknown(WaitKind[object, datetime]):
    noun = "a wait of another kind"

    def __init__(self, name: str) -> None:
        self.name = name

    async def answer(self, store: object, job_id: UUID, wait: Wait) -> datetime | None:
        """See `WaitKind.answer`."""
        del store, job_id
        return wait.answered_at

    def line(self, wait: Wait, seen: Situation) -> WaitLine | None:
        """See `WaitKind.line`."""
        short = f"{wait.kind} '{wait.key}' is to be answered"
        if wait.until is not None:
            short += f" before {when(wait.until, seen.now)}"
        fact = {"key": wait.key, "kind": wait.kind, "subject": wait.subject_id, "until": wait.until}
        return WaitLine(Why.WAITING, f"It waits: {short}.", short, "waits", fact)
