"""What the runtime reports to an observer, such as metrics and traces.

Without metrics and traces the observer is None. An observer never raises, blocks or decides anything: if it fails, it logs that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Literal, Protocol, Self, TypeAlias, TypeVar

from perdure.model.approvals import Approval
from perdure.model.jobs import ClaimedJob, Enqueued, NewJob, Outcome
from perdure.model.states import Status
from perdure.model.stuck import StuckAction
from perdure.model.task_records import ToolRun
from perdure.store.protocol import Store

T = TypeVar("T")

Call: TypeAlias = Literal["step", "tool"]
Sent: TypeAlias = Callable[[Sequence[Enqueued] | BaseException], None]
"""To be called with the acknowledgements of the sent jobs, in order, or with what was raised instead."""


class Observer(Protocol):
    """Is called for jobs, attempts and calls of steps and tools, when they happen in this process."""

    def sending(self, jobs: Sequence[NewJob]) -> tuple[Sequence[NewJob], Sent]:
        """Called before jobs are enqueued. Returns the jobs, whose notes it may have changed, and a function that is then called
        with the outcome."""
        ...

    async def attempt_started(self, claimed: ClaimedJob, store: Store, *, waited: float) -> None:
        """Called in the task of the attempt, before any code of the handler. waited: seconds since the job was due."""
        ...

    async def attempt_ending(self, claimed: ClaimedJob, outcome: Outcome, store: Store) -> None:
        """Called before the outcome is written, while the lease is held, for attempts that failed or whose
        job goes on."""
        ...

    def attempt_ended(self, claimed: ClaimedJob, outcome: Outcome | None, status: Status | None) -> None:
        """Called when the attempt has ended. outcome None: its lease was lost. status: the committed one, None if none was."""
        ...

    async def call(self, claimed: ClaimedJob, what: Call, key: str, work: Awaitable[T]) -> T:
        """Await the work of a step or tool, in the current context, and return or raise what it does."""
        ...

    def replayed(self, claimed: ClaimedJob, what: Call, key: str) -> None:
        """The result of a step or tool was read from the log."""
        ...

    def approval_requested(self, claimed: ClaimedJob, approval: Approval) -> None:
        """The attempt requested an approval."""
        ...

    def approval_decided(self, claimed: ClaimedJob, approval: Approval) -> None:
        """The attempt recorded the answer to an approval."""
        ...

    def usage(self, claimed: ClaimedJob, tokens: int, cost: Decimal) -> None:
        """The handler reported usage."""
        ...

    def stuck(self, claimed: ClaimedJob, action: StuckAction) -> None:
        """The attempt made no progress, and this is done about it."""
        ...

    def tool_run(self, claimed: ClaimedJob, run: ToolRun) -> None:
        """A run of a coding CLI was recorded."""
        ...


class Sending:
    """Jobs that are being enqueued, and the observer to be called with the outcome, if there is one. As a context manager it
    reports what is raised."""

    def __init__(self, observer: Observer | None, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        """The jobs to store."""
        self._sent: Sent | None = None
        if observer is not None:
            self.jobs, self._sent = observer.sending(jobs)

    def stored(self, acknowledged: Sequence[Enqueued]) -> Sequence[Enqueued]:
        """Report that they are stored; return the acknowledgements."""
        self._report(acknowledged)
        return acknowledged

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._report(error)

    def _report(self, outcome: Sequence[Enqueued] | BaseException) -> None:
        sent, self._sent = self._sent, None
        if sent is not None:
            sent(outcome)
