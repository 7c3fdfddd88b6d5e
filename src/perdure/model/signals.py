"""Signals: what is sent to a job under a key, and is taken once by a wait for that key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID


class NewSignal(NamedTuple):
    """A signal to be sent. payload: JSON text. caller_id: the id its sender gave it, None if it gave none."""

    id: UUID
    job_id: UUID
    key: str
    payload: str
    caller_id: str | None
    actor: str
    via: str


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that was sent to a job.

    caller_id: the id that its sender gave it. actor, via: who sent it, and via what. consumed_at: when a wait took it, None while
    it is pending. wait_key: the key of that wait. refused: why the handler did not take it, where its payload does not fit.
    """

    id: UUID
    tenant_id: str
    job_id: UUID
    key: str
    payload: Any
    caller_id: str | None
    actor: str
    via: str
    created_at: datetime
    consumed_at: datetime | None = None
    wait_key: str | None = None
    refused: str | None = None

    @property
    def pending(self) -> bool:
        """Whether no wait has taken it yet."""
        return self.consumed_at is None
