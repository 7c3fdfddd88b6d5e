"""The state machine of a job. `TRANSITIONS` is its only definition: the triggers of both dialects, the
diagram in the docs and the tests are generated from it or checked against it."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class Status(StrEnum):
    """The ten states of a job, as stored, printed and typed."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    RETRY = "RETRY"
    WAITING = "WAITING"
    PARKED = "PARKED"
    WAITING_FOR_APPROVAL = "WAITING_FOR_APPROVAL"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    DEADLETTER = "DEADLETTER"

    @property
    def terminal(self) -> bool:
        """True where nothing leaves the state."""
        return self in TERMINAL

    @property
    def leased(self) -> bool:
        """True where a worker holds the job: exactly these states keep a row in `job_claims`."""
        return self in LEASED


S = Status
TRANSITIONS: MappingProxyType[Status, frozenset[Status]] = MappingProxyType(
    {
        S.PENDING: frozenset({S.RUNNING, S.FAILED, S.CANCELLED}),
        S.RUNNING: frozenset(
            {S.COMPLETED, S.FAILED, S.RETRY, S.WAITING, S.PARKED, S.WAITING_FOR_APPROVAL, S.CANCELLED, S.DEADLETTER}
        ),
        S.RETRY: frozenset({S.RUNNING, S.CANCELLED, S.FAILED, S.DEADLETTER}),
        S.WAITING: frozenset({S.RUNNING, S.PARKED, S.RETRY, S.FAILED, S.CANCELLED, S.DEADLETTER}),
        S.PARKED: frozenset({S.RUNNING, S.FAILED, S.CANCELLED, S.DEADLETTER}),
        S.WAITING_FOR_APPROVAL: frozenset({S.RUNNING, S.FAILED, S.CANCELLED}),
        S.COMPLETED: frozenset(),
        S.FAILED: frozenset(),
        S.CANCELLED: frozenset(),
        S.DEADLETTER: frozenset(),
    }
)

TERMINAL = frozenset(s for s, targets in TRANSITIONS.items() if not targets)
LEASED = frozenset({S.RUNNING, S.WAITING})
FAILURES = frozenset({S.FAILED, S.DEADLETTER})
CLAIMABLE = frozenset({S.PENDING, S.RETRY, S.PARKED, S.WAITING_FOR_APPROVAL})

# Spellings of the design documents, accepted wherever a status is typed as a filter.
SYNONYMS: MappingProxyType[str, Status] = MappingProxyType(
    {
        "QUEUED": S.PENDING,
        "LEASED": S.RUNNING,
        "SUCCEEDED": S.COMPLETED,
        "CANCELED": S.CANCELLED,
        "DEAD": S.DEADLETTER,
    }
)


def parse_status(text: str) -> Status:
    """The status a person typed: any case, `-` for `_`, and the synonyms `queued leased succeeded canceled`.

    Raises ValueError naming the known words.
    """
    word = text.strip().upper().replace("-", "_")
    if word in SYNONYMS:
        return SYNONYMS[word]
    try:
        return Status(word)
    except ValueError:
        known = ", ".join(s.value for s in Status)
        raise ValueError(f"unknown status '{text}'; known: {known}") from None


def transition_event(previous: Status | None, new: Status) -> str:
    """The type of the event that the audit trigger writes for a transition (or for birth: previous is None)."""
    if previous is None:
        return "job_created"
    if new is S.RUNNING:
        return "job_resumed" if previous is S.WAITING else "run_started"
    return _EVENT_OF[new]


_EVENT_OF = {
    S.COMPLETED: "job_completed",
    S.FAILED: "job_failed",
    S.CANCELLED: "job_cancelled",
    S.DEADLETTER: "job_deadlettered",
    S.RETRY: "job_retrying",
    S.WAITING: "job_waiting",
    S.PARKED: "job_parked",
    S.WAITING_FOR_APPROVAL: "job_waiting_for_approval",
}
