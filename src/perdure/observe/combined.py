"""Several observers as one."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from decimal import Decimal
from typing import TypeVar

from perdure.model.approvals import Approval
from perdure.model.jobs import ClaimedJob, Enqueued, NewJob, Outcome
from perdure.model.states import Status
from perdure.model.stuck import StuckAction
from perdure.model.task_records import ToolRun
from perdure.runtime.observer import Call, Observer, Sent
from perdure.store.protocol import Store

T = TypeVar("T")


def combined(observers: Sequence[Observer]) -> Observer | None:
    """One observer that calls all of these; None for none."""
    if len(observers) < 2:
        return observers[0] if observers else None
    return _Pair(observers[0], combined(observers[1:]) or observers[1])


class _Pair:
    """Calls both observers; the first one's `call` is around the second one's. See `Observer`."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self._first = first
        self._second = second

    def sending(self, jobs: Sequence[NewJob]) -> tuple[Sequence[NewJob], Sent]:
        jobs, first = self._first.sending(jobs)
        jobs, second = self._second.sending(jobs)

        def sent(how: Sequence[Enqueued] | BaseException) -> None:
            second(how)
            first(how)

        return jobs, sent

    async def attempt_started(self, claimed: ClaimedJob, store: Store, *, waited: float) -> None:
        await self._first.attempt_started(claimed, store, waited=waited)
        await self._second.attempt_started(claimed, store, waited=waited)

    async def attempt_ending(self, claimed: ClaimedJob, outcome: Outcome, store: Store) -> None:
        await self._first.attempt_ending(claimed, outcome, store)
        await self._second.attempt_ending(claimed, outcome, store)

    def attempt_ended(self, claimed: ClaimedJob, outcome: Outcome | None, status: Status | None) -> None:
        self._first.attempt_ended(claimed, outcome, status)
        self._second.attempt_ended(claimed, outcome, status)

    async def call(self, claimed: ClaimedJob, what: Call, key: str, work: Awaitable[T]) -> T:
        return await self._first.call(claimed, what, key, self._second.call(claimed, what, key, work))

    def replayed(self, claimed: ClaimedJob, what: Call, key: str) -> None:
        self._first.replayed(claimed, what, key)
        self._second.replayed(claimed, what, key)

    def approval_requested(self, claimed: ClaimedJob, approval: Approval) -> None:
        self._first.approval_requested(claimed, approval)
        self._second.approval_requested(claimed, approval)

    def approval_decided(self, claimed: ClaimedJob, approval: Approval) -> None:
        self._first.approval_decided(claimed, approval)
        self._second.approval_decided(claimed, approval)

    def usage(self, claimed: ClaimedJob, tokens: int, cost: Decimal) -> None:
        self._first.usage(claimed, tokens, cost)
        self._second.usage(claimed, tokens, cost)

    def stuck(self, claimed: ClaimedJob, action: StuckAction) -> None:
        self._first.stuck(claimed, action)
        self._second.stuck(claimed, action)

    def tool_run(self, claimed: ClaimedJob, run: ToolRun) -> None:
        self._first.tool_run(claimed, run)
        self._second.tool_run(claimed, run)
