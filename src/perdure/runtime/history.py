"""What earlier attempts of a job recorded: read once when a later attempt begins, and asked by every keyed call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from perdure.model.events import REPLAY_TYPES, Event
from perdure.model.jobs import Wait
from perdure.store.protocol import Store

_PAGE = 1000


@dataclass(slots=True)
class ToolCalls:
    """The calls of one tool key so far. `open` is True while the last one's outcome is unknown."""

    digest: str
    count: int = 0
    open: bool = False


@dataclass(slots=True)
class OpenedWait:
    """A wait that an earlier attempt began, and the database time it began at (UTC)."""

    payload: dict[str, Any]
    at: datetime


@dataclass(slots=True)
class History:
    """Recorded outcomes by key; empty in a first attempt."""

    finished: dict[str, dict[str, Any]] = field(default_factory=dict)
    """node_finished and tool_returned payloads: key, digest, result."""
    tools: dict[str, ToolCalls] = field(default_factory=dict)
    waits: dict[str, OpenedWait] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """wait_completed payloads."""
    rows: dict[str, Wait] = field(default_factory=dict)
    """The rows of the open waits, as they were when this attempt began."""
    approvals: dict[str, UUID] = field(default_factory=dict)
    notified: set[str] = field(default_factory=set)

    def read(self, events: Iterable[Event]) -> None:
        """Fold events, in order, into this history."""
        for event in events:
            payload = event.payload
            key = payload.get("key") if isinstance(payload, dict) else None
            if key is None:
                continue
            match event.type:
                case "node_finished":
                    self.finished[key] = payload
                case "tool_called":
                    calls = self.tools.setdefault(key, ToolCalls(payload["digest"]))
                    calls.count += 1
                    calls.open = True
                case "tool_returned":
                    self.finished[key] = payload
                    self.tools.setdefault(key, ToolCalls(payload["digest"])).open = False
                case "tool_failed":
                    self.tools[key].open = False
                case "wait_started":
                    self.waits[key] = OpenedWait(payload, event.at)
                case "wait_completed":
                    self.answers[key] = payload
                case "approval_requested":
                    self.approvals[key] = UUID(payload["approval"])
                case "approval_notified":
                    self.notified.add(key)
                case _:
                    pass  # trace and lifecycle events: a replay does not need them


NO_HISTORY = History()
"""The history of every first attempt; it is read and never written."""


async def load_history(store: Store, job_id: UUID) -> History:
    """Read the replay events of a job, page by page."""
    history, after = History(), 0
    types = sorted(REPLAY_TYPES)
    while events := await store.jobs.list_events(job_id, after=after, limit=_PAGE, types=types):
        history.read(events)
        after = events[-1].version
        if len(events) < _PAGE:
            break
    return history
