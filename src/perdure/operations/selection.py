"""Which jobs an operation is about."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class JobSelection:
    """Which jobs are meant: those that match every field; several values of one field are alternatives. Empty: all jobs.

    status: names in any spelling. kind: handlers. since, until: when it was enqueued; timezone-aware. search: a part of the
    goal, the kind or the error message.
    """

    status: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    search: str | None = None
    tags: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(self.arguments().values())

    def arguments(self) -> dict[str, Any]:
        """As the keyword arguments of `Jobs.list`; what was not given is left out."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in given.items() if value is not None and value != ()}


ALL_JOBS = JobSelection()
