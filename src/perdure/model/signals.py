"""Signals: what is sent to a job, or to an agent, under a key, and is taken once by a wait for that key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from perdure.model.jobs import MAX_JSON_BYTES


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


class NewAgentSignal(NamedTuple):
    """A signal to an agent. payload: JSON text. caller_id: as in NewSignal. expires_in: seconds after which no job gets it; None:
    never."""

    id: UUID
    agent_id: str
    key: str
    payload: str
    caller_id: str | None
    expires_in: float | None
    actor: str
    via: str


@dataclass(frozen=True, slots=True)
class AgentSignal:
    """A signal that was sent to an agent.

    caller_id, actor, via: as in Signal. expires_at: when no job gets it any more. expired: whether that has come before a job
    got it. consumed_by_job_id, consumed_at: the job that got it, and when; None while it is pending.
    """

    id: UUID
    tenant_id: str
    agent_id: str
    key: str
    payload: Any
    caller_id: str | None
    actor: str
    via: str
    created_at: datetime
    expires_at: datetime | None = None
    consumed_by_job_id: UUID | None = None
    consumed_at: datetime | None = None
    expired: bool = False

    @property
    def state(self) -> str:
        """`pending`, `consumed` or `expired`."""
        if self.consumed_by_job_id is not None:
            return "consumed"
        return "expired" if self.expired else "pending"


class ReceivedSignal(NamedTuple):
    """A signal as a job has it: its id, its key and its payload as plain JSON."""

    id: UUID
    key: str
    payload: Any


MOST_BOUND = 100
"""Signals of an agent that one job gets at once."""


class TakenSignals(NamedTuple):
    """Signals that a job has taken at once, without a wait. more: others may be there."""

    signals: list[ReceivedSignal]
    more: bool


def taken_together(pending: Sequence[Signal]) -> TakenSignals:
    """The first of these signals, which are in order: as many as one event can hold, at most `MOST_BOUND`."""
    chosen: list[ReceivedSignal] = []
    size = 0
    for signal in pending[:MOST_BOUND]:
        size += len(json.dumps(signal.payload, ensure_ascii=False).encode())
        if chosen and size > MAX_JSON_BYTES:
            break
        chosen.append(ReceivedSignal(signal.id, signal.key, signal.payload))
    return TakenSignals(chosen, len(chosen) < len(pending) or len(chosen) == MOST_BOUND)


def taken_note(key: str, taken: TakenSignals) -> str:
    """The payload of `signals_taken`, as JSON. key: that of the call."""
    signals = [{"signal": str(id), "subject": name, "payload": payload} for id, name, payload in taken.signals]
    return json.dumps({"key": key, "more": taken.more, "signals": signals}, ensure_ascii=False)


def taken_of(note: Mapping[str, Any]) -> TakenSignals:
    """What a payload of `signals_taken` says."""
    signals = [ReceivedSignal(UUID(each["signal"]), each["subject"], each["payload"]) for each in note["signals"]]
    return TakenSignals(signals, note["more"])
