"""The base class of the kinds of waits: everything that the runtime, `explain` and `fsck` need to know of a kind.

A wait is a row of `job_waits`. Whatever answers it sets the row's `answered_at`, in the transaction that stores the answer; the
database then wakes the job. A new kind is one file with a subclass of `WaitKind` and a call of `register`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from perdure.model.effects import Effect, close_wait, open_wait
from perdure.model.explanation import Move, Situation, Why
from perdure.model.jobs import Wait
from perdure.model.states import Status
from perdure.model.timing import when

S_contra = TypeVar("S_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)


@dataclass(frozen=True, slots=True)
class WaitLine:
    """What `explain` says of an open wait.

    sentence: a whole sentence. short: the same as a clause without its full stop. group, fact: the list of the explanation's
    details that it belongs to, and its item there. moves: what would answer the wait.
    """

    code: Why
    sentence: str
    short: str
    group: str
    fact: dict[str, Any]
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitFault:
    """A wait and its subject disagree on the answer: `text` says how, `answered_at` is what the wait should have."""

    text: str
    answered_at: datetime | None


class Facts(Protocol):
    """What `fsck` has read about a job."""

    now: datetime

    def rows(self, part: str) -> Sequence[Mapping[str, Any]]:
        """The job's rows of one table: `approvals`, `queue`, ..."""
        ...

    def time(self, row: Mapping[str, Any], name: str) -> datetime | None:
        """A time column of a row."""
        ...


class WaitKind(ABC, Generic[S_contra, A_co]):
    """A kind of wait: S is what its answer is read from, a store or a part of one; A is the answer."""

    name: str
    """The value of `job_waits.kind`, and of `kind` in the log."""
    noun: str
    """With its article, for messages: "a sleep"."""
    status: Status = Status.PARKED
    """The status of a job that is suspended on it."""
    answerable: bool = True
    """False if only time ends it: then its row is not polled."""
    opened_by: str = "wait_started"
    """The type of the event that opens it. Its payload has `key`, `kind` and, if there is a limit, `until`."""
    subject_field: str = "subject"
    """The field of that event that holds the subject's id."""
    answered_by: str | None = None
    """The type of the event, if any, that the answer adds to the job's log; its payload has the wait's `key`."""

    @abstractmethod
    async def answer(self, store: S_contra, job_id: UUID, wait: Wait) -> A_co | None:
        """Read the answer to this job's wait; None if there is none yet. Called once when the wait begins, and when its row has
        been answered."""

    def opens(self, wait: Wait) -> tuple[Effect, ...]:
        """What commits together with its beginning."""
        return (open_wait(wait),)

    def closes(self, wait: Wait, *, answered: bool) -> tuple[Effect, ...]:
        """What commits together with its end. answered: whether it ends with an answer, and not because its time has come."""
        del answered
        return (close_wait(self.name, wait.key),)

    def recorded(self, answer: Any) -> dict[str, Any]:
        """What `wait_completed` holds of an answer, besides kind and key."""
        return {} if answer is None else {"answer": answer}

    @abstractmethod
    def line(self, wait: Wait, seen: Situation) -> WaitLine | None:
        """What `explain` says while it is open; None if it can no longer be answered."""

    def woke(self, wait: Wait, seen: Situation) -> str | None:
        """How `explain` says that it was answered: a clause that ends with a comma and a blank. None while it is open."""
        if wait.answered_at is None:
            return None
        return f"'{wait.key}' was answered {when(wait.answered_at, seen.now)}, "

    def ended(self, wait: Wait, now: datetime) -> str:
        """How `explain` says that its time has passed: a clause that ends with a comma and a blank."""
        return f"The time of '{wait.key}' ended {when(wait.until, now)}, "

    def fault(self, wait: Wait, facts: Facts) -> WaitFault | None:
        """Whether the row and its subject disagree on the answer, for `fsck`."""
        del wait, facts
        return None
