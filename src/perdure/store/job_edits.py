"""What an edit of a job is refused for, and what its event says; both dialects alike."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from perdure.model.errors import IllegalTransition, InvalidInput
from perdure.model.ids import hash_json, short_id
from perdure.model.job_changes import EDITABLE, Editing
from perdure.model.states import Status


def check_editable(job_id: UUID, status: Status, edit: Editing) -> None:
    """Raises IllegalTransition."""
    name = short_id(job_id)
    if status.terminal:
        raise IllegalTransition(
            f"job …{name} cannot be edited: it is already {status}",
            hint=f"to run it again with another input: perdure jobs fork {name} --input JSON",
        )
    if status not in EDITABLE:
        raise IllegalTransition(
            f"job …{name} cannot be edited: it is {status}, and its worker has read it already",
            hint=f"cancel it and start another: perdure jobs cancel {name}",
        )
    if edit.timed and status not in (Status.PENDING, Status.RETRY):
        raise IllegalTransition(
            f"job …{name} is {status}: only a job that is PENDING or in RETRY has a time to start",
            hint=f"perdure jobs explain {name} says what it waits for",
        )
    if edit.payload is not None and status is not Status.PENDING:
        raise IllegalTransition(
            f"job …{name} is {status}: the input of a job is kept once it has started",
            hint=f"to run it again with another input: perdure jobs fork {name} --input JSON",
        )


def check_payload_editable(kind: str) -> None:
    """Raises InvalidInput for a task: its files belong to its input."""
    if kind.startswith("cli."):
        raise InvalidInput("the input of a task cannot be edited", hint="cancel it and start another")


def changes_of(
    edit: Editing, *, priority: int, at: datetime | None, new_at: datetime | None, payload: str
) -> dict[str, Any]:
    """What differs, by name: the old and the new value; of an input their hashes. Empty: nothing does."""
    changes: dict[str, Any] = {}
    if edit.priority is not None and edit.priority != priority:
        changes["priority"] = [priority, edit.priority]
    if new_at is not None and new_at != at:
        changes["due_at"] = [None if at is None else at.isoformat(), new_at.isoformat()]
    if edit.payload is not None and edit.payload != payload:
        changes["payload"] = [hash_json(payload), hash_json(edit.payload)]
    return changes


def note_of_edit(note: str, changes: dict[str, Any]) -> str:
    """The payload of the event, as JSON text."""
    return json.dumps({**json.loads(note), "changes": changes}, ensure_ascii=False)
