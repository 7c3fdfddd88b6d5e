"""A log line for each attempt that ends: the setting `log_jobs`."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import TypeVar

import structlog

from perdure.model.approvals import Approval
from perdure.model.jobs import ClaimedJob, Enqueued, NewJob, Outcome
from perdure.model.states import Status
from perdure.model.stuck import StuckAction
from perdure.model.task_records import ToolRun
from perdure.runtime.observer import Call, Sent
from perdure.store.protocol import Store

T = TypeVar("T")

log = structlog.get_logger("perdure.jobs")


class JobLog:
    """Logs the ends of attempts whose code ran. See `Observer`."""

    def attempt_ended(self, claimed: ClaimedJob, outcome: Outcome | None, status: Status | None) -> None:
        """An end that was not written, as that of a lost lease, has a line of its own."""
        if outcome is None or status is None or not outcome.started:
            return
        lease = claimed.lease
        with suppress(Exception):  # a log that cannot be written ends no worker
            log.info(
                "attempt ended",
                job_id=str(lease.job_id),
                kind=claimed.kind,
                status=status.value,
                seconds=round(outcome.ran, 3),
                attempt=lease.attempt,
                worker=lease.worker_id,
            )

    def sending(self, jobs: Sequence[NewJob]) -> tuple[Sequence[NewJob], Sent]:
        return jobs, _nothing

    async def attempt_started(self, claimed: ClaimedJob, store: Store, *, waited: float) -> None:
        pass

    async def attempt_ending(self, claimed: ClaimedJob, outcome: Outcome, store: Store) -> None:
        pass

    async def call(self, claimed: ClaimedJob, what: Call, key: str, work: Awaitable[T]) -> T:  # noqa: ARG002  see Observer
        return await work

    def replayed(self, claimed: ClaimedJob, what: Call, key: str) -> None:
        pass

    def approval_requested(self, claimed: ClaimedJob, approval: Approval) -> None:
        pass

    def approval_decided(self, claimed: ClaimedJob, approval: Approval) -> None:
        pass

    def usage(self, claimed: ClaimedJob, tokens: int, cost: Decimal) -> None:
        pass

    def stuck(self, claimed: ClaimedJob, action: StuckAction) -> None:
        pass  # its watch logs it

    def tool_run(self, claimed: ClaimedJob, run: ToolRun) -> None:
        pass  # the handler of tasks logs its runs


def _nothing(acknowledged: Sequence[Enqueued] | BaseException) -> None:
    pass
