"""What a store should hold, as plain Python: the small model that the state machine compares every store with."""

from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from perdure.model.jobs import MAX_LOST_STARTS, MAX_SUSPICION, SUSPECT_AT, Lease
from perdure.model.states import FAILURES, TRANSITIONS, Status, transition_event

S = Status
Due = Literal["now", "later"]
"""When a job starts or wakes by itself; None: not at all."""


@dataclass
class ModelJob:
    """One job: its row, its log as a list of types, its lease and its open waits."""

    id: UUID
    priority: int
    max_retries: int
    due: Due | None
    status: Status = S.PENDING
    attempt: int = 0
    retry_count: int = 0
    lost_starts: int = 0
    suspicion: int = 0
    tokens: int = 0
    lease: Lease | None = None
    expired: bool = False
    begun: bool = False
    cancel_asked: bool = False
    waits: dict[str, Due | Literal["answer", "answered"]] = field(default_factory=dict)
    asked: dict[str, UUID] = field(default_factory=dict)
    types: list[str] = field(default_factory=lambda: ["job_created"])
    stale: list[Lease] = field(default_factory=list)

    @property
    def live(self) -> Lease | None:
        """The lease that may write, if any."""
        return None if self.expired else self.lease

    @property
    def closable(self) -> list[str]:
        """The waits a holder might be done with: timers, and questions that were answered."""
        return sorted(key for key, state in self.waits.items() if state != "answer")

    def claimed(self, lease: Lease) -> None:
        """A worker took it."""
        self.attempt += 1
        assert lease.attempt == self.attempt
        self._move(S.RUNNING)
        self.lease, self.expired, self.begun, self.cancel_asked, self.due = lease, False, False, False, None

    def recorded(self, *types: str) -> None:
        """Its holder wrote events."""
        self.types += types
        self.begun = True

    def waiting(self, waiting: bool) -> None:
        """Its holder went to or came from a short wait."""
        self._move(S.WAITING if waiting else S.RUNNING)

    def finished(self, status: Status, *, uses_retry: bool, due: Due) -> Status:
        """Its holder gave it up; the status that must have been committed."""
        if self.cancel_asked and not status.terminal:
            status = S.CANCELLED
        if status is S.RETRY and uses_retry:
            if self.retry_count == self.max_retries:
                status = S.DEADLETTER
            else:
                self.retry_count += 1
        self.lost_starts = 0
        if status is not S.RETRY or uses_retry:
            self.suspicion = 0
        self._end_lease()
        self._move(status)
        if status is S.RETRY:
            self.due = due
        elif status in {S.PARKED, S.WAITING_FOR_APPROVAL}:
            self.due = self._due_from_waits()
        return status

    def spared(self, crowd: list["ModelJob"]) -> bool:
        """Whether it uses no retry if it is lost now. crowd: the started jobs of its worker, itself among them."""
        others = [job.suspicion for job in crowd if job is not self]
        if not self.begun or self.suspicion >= MAX_SUSPICION:
            return False
        return any(other >= self.suspicion for other in others) if self.suspicion >= SUSPECT_AT else bool(others)

    def reaped(self, *, spared: bool) -> Status:
        """Its expired lease was taken away; the status that must have been committed."""
        if self.cancel_asked:
            status = S.CANCELLED
        elif spared:
            status = S.RETRY
            self.suspicion += 1
        elif self.begun:
            status = S.RETRY if self.retry_count < self.max_retries else S.DEADLETTER
        else:
            status = S.RETRY if self.lost_starts + 1 < MAX_LOST_STARTS else S.DEADLETTER
        if status is S.RETRY:
            self.retry_count += self.begun and not spared
        self.lost_starts += not self.begun
        self._end_lease()
        self._move(status)
        self.due = "now" if status is S.RETRY else None
        return status

    def cancelled(self, *, force: bool) -> Status:
        """A client cancelled it; the status that must have been returned."""
        if self.live is not None and not force:
            if not self.cancel_asked:
                self.types.append("cancel_requested")
            self.cancel_asked = True
            return self.status
        if self.lease is not None:
            self._end_lease()
        self._move(S.CANCELLED)
        return self.status

    def decided(self, key: str, *, denied: bool) -> None:
        """A person decided an approval of it, which fails the job on denial."""
        self.types.append("approval_decided")
        del self.asked[key]
        if key in self.waits:
            self.waits[key] = "answered"
        if self.status in {S.PARKED, S.WAITING_FOR_APPROVAL}:
            if denied:
                self._move(S.FAILED)
            else:
                self.due = "now"

    def made_due(self) -> None:
        """A client made it due now."""
        if self.due == "later":
            self.types.append("made_due")
        self.due = "now"

    def _due_from_waits(self) -> Due | None:
        kinds = set(self.waits.values())
        if not kinds or kinds & {"answered", "now"}:
            return "now"
        return "later" if "later" in kinds else None

    def _end_lease(self) -> None:
        assert self.lease is not None
        self.stale.append(self.lease)
        self.lease, self.expired, self.begun, self.cancel_asked = None, False, False, False

    def _move(self, status: Status) -> None:
        assert status in TRANSITIONS[self.status]
        self.types.append(transition_event(self.status, status))
        self.status = status
        if status.terminal:
            self.waits.clear()
            self.asked.clear()
            self.due = None
        assert (status in FAILURES) <= status.terminal
