"""The state machine of a job. `TRANSITIONS` is its only definition: the triggers of both dialects, the diagram in the docs and
the tests are generated from it or checked against it."""

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
        """True if no transition leaves the state."""
        return self in TERMINAL

    @property
    def leased(self) -> bool:
        """True if a worker holds the job: exactly these states have a row in `job_claims`."""
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
"""The statuses that a job may move to from each status; no other transition exists."""

CAUSES: MappingProxyType[tuple[Status, Status], str] = MappingProxyType(
    {
        (S.PENDING, S.RUNNING): "a worker claims it",
        (S.PENDING, S.FAILED): "its deadline passed before it started",
        (S.PENDING, S.CANCELLED): "cancelled before it started",
        (S.RUNNING, S.COMPLETED): "the handler returned",
        (S.RUNNING, S.FAILED): "a fatal error, a denial, an expired approval or the deadline",
        (S.RUNNING, S.RETRY): "a failure with retries left, a lost lease, a snooze, or its worker stops",
        (S.RUNNING, S.WAITING): "it waits for a timer that ends within the linger",
        (S.RUNNING, S.PARKED): "it waits for a timer that ends later",
        (S.RUNNING, S.WAITING_FOR_APPROVAL): "it waits for the answer of a person",
        (S.RUNNING, S.CANCELLED): "cancelled while it ran",
        (S.RUNNING, S.DEADLETTER): "a failure or a lost lease with no retry left",
        (S.RETRY, S.RUNNING): "next_retry_at has come and a worker claims it",
        (S.RETRY, S.FAILED): "its deadline passed",
        (S.RETRY, S.CANCELLED): "cancelled before the retry",
        (S.RETRY, S.DEADLETTER): "only by SQL",
        (S.WAITING, S.RUNNING): "the timer ended",
        (S.WAITING, S.RETRY): "a lost lease, a failure of a parallel branch, or its worker stops",
        (S.WAITING, S.PARKED): "only by SQL",
        (S.WAITING, S.FAILED): "its deadline passed, or a fatal error of a parallel branch",
        (S.WAITING, S.CANCELLED): "cancelled while it waited",
        (S.WAITING, S.DEADLETTER): "a lost lease or a failure with no retry left",
        (S.PARKED, S.RUNNING): "its timer ended and a worker claims it",
        (S.PARKED, S.FAILED): "its deadline passed",
        (S.PARKED, S.CANCELLED): "cancelled while it was parked",
        (S.PARKED, S.DEADLETTER): "only by SQL",
        (S.WAITING_FOR_APPROVAL, S.RUNNING): "it was answered, or a parallel timer ended, and a worker claims it",
        (S.WAITING_FOR_APPROVAL, S.FAILED): "denied, expired, or its deadline passed",
        (S.WAITING_FOR_APPROVAL, S.CANCELLED): "cancelled while it waited for an answer",
    }
)
"""What causes each transition, as the diagram in the docs says it. "only by SQL": perdure itself never does this."""

TERMINAL = frozenset(s for s, targets in TRANSITIONS.items() if not targets)
LEASED = frozenset({S.RUNNING, S.WAITING})
FAILURES = frozenset({S.FAILED, S.DEADLETTER})
WITHOUT_RESULT = FAILURES | {S.CANCELLED}
CLAIMABLE = frozenset({S.PENDING, S.RETRY, S.PARKED, S.WAITING_FOR_APPROVAL})

# The names in the design documents, accepted wherever a status is typed as a filter.
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
    """The status a person typed: any case, `-` for `_`, and the synonyms `queued leased succeeded canceled dead`.

    Raises ValueError, whose message has all names.
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
    """The type of the event that the audit trigger writes for a transition; previous is None for a new job."""
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
