"""What the runtime reports to an observer, such as metrics and traces.

Without an observer it is None, and every place that reports checks only that. An observer never raises, blocks or decides
anything: what it cannot do it logs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, Self, TypeAlias, TypeVar

from perdure.model.approvals import Approval
from perdure.model.jobs import ClaimedJob, Enqueued, NewJob, Outcome
from perdure.model.states import Status
from perdure.store.protocol import Store

T = TypeVar("T")

Call: TypeAlias = Literal["step", "tool"]
Sent: TypeAlias = Callable[[Sequence[Enqueued] | BaseException], None]
"""To be called with the acknowledgements of what was sent, in order, or with what was raised instead."""


class Observer(Protocol):
    """Hears of jobs, attempts and calls as they happen in this process."""

    def sending(self, jobs: Sequence[NewJob]) -> tuple[Sequence[NewJob], Sent]:
        """These jobs are about to be enqueued: the same jobs, something added to their notes perhaps, and whom to tell how it
        went."""
        ...

    async def attempt_started(self, claimed: ClaimedJob, store: Store, *, waited: float) -> None:
        """In the task of the attempt, before any code of the handler. waited: seconds from due to here."""
        ...

    async def attempt_ending(self, claimed: ClaimedJob, outcome: Outcome, store: Store) -> None:
        """The lease is still held, the outcome not yet written. Also for claims that never started."""
        ...

    def attempt_ended(self, claimed: ClaimedJob, outcome: Outcome | None, status: Status | None) -> None:
        """The attempt is over. outcome None: its lease was lost. status: what was committed, None if nothing was."""
        ...

    async def call(self, claimed: ClaimedJob, what: Call, key: str, work: Awaitable[T]) -> T:
        """Await the work of a step or tool, which runs in this very context, and return or raise what it does."""
        ...

    def replayed(self, claimed: ClaimedJob, what: Call, key: str) -> None:
        """A step or tool was answered from the log."""
        ...

    def approval_requested(self, claimed: ClaimedJob, approval: Approval) -> None:
        """The attempt asked a person."""
        ...

    def approval_decided(self, claimed: ClaimedJob, approval: Approval) -> None:
        """The attempt got its answer and recorded it."""
        ...

    def usage(self, claimed: ClaimedJob, tokens: int, cost: float) -> None:
        """The handler reported what it used."""
        ...


class Sending:
    """Jobs on their way into the store, and the observer that is told how it went, if there is one. As a context it tells
    what is raised."""

    def __init__(self, observer: Observer | None, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        """What is to be stored."""
        self._sent: Sent | None = None
        if observer is not None:
            self.jobs, self._sent = observer.sending(jobs)

    def stored(self, acknowledged: Sequence[Enqueued]) -> Sequence[Enqueued]:
        """They are in the store; returns the acknowledgements."""
        self._tell(acknowledged)
        return acknowledged

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._tell(error)

    def _tell(self, how: Sequence[Enqueued] | BaseException) -> None:
        sent, self._sent = self._sent, None
        if sent is not None:
            sent(how)
