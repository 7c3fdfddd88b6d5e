"""The calls that programs make most often, without naming the part of the client: `enqueue`, `signal`, `approve`, `deny`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, Unpack, overload

from perdure.model.approval_rules import RuleScope
from perdure.model.approvals import Approval
from perdure.model.signals import Signal
from perdure.model.timing import Duration
from perdure.runtime.client.accounts import Accounts
from perdure.runtime.client.agents import Agents
from perdure.runtime.client.approvals import Approvals
from perdure.runtime.client.base import JobId
from perdure.runtime.client.database import Database
from perdure.runtime.client.enqueue import EnqueueOptions, Request
from perdure.runtime.client.jobs import Jobs
from perdure.runtime.client.limits import Limits
from perdure.runtime.client.memories import Memories
from perdure.runtime.client.queues import Queues
from perdure.runtime.client.schedules import Schedules
from perdure.runtime.client.signals import HasId
from perdure.runtime.client.tasks import Tasks
from perdure.runtime.client.workers import Workers
from perdure.runtime.handle import Handle
from perdure.runtime.registry import Handler

I = TypeVar("I")  # noqa: E741  the handler's input
O = TypeVar("O")  # noqa: E741  the handler's output


class Shortcuts:
    """The parts of a client, and its shortcuts."""

    jobs: Jobs
    """Enqueue jobs, read them, wait for them, control them."""
    approvals: Approvals
    """Approvals: list them, decide them."""
    tasks: Tasks
    """Tasks: jobs that run a coding CLI."""
    accounts: Accounts
    """The accounts of coding CLIs."""
    agents: Agents
    """Agents: their mailboxes, messages to them."""
    limits: Limits
    """How many jobs of a concurrency key may run at a time."""
    schedules: Schedules
    """Jobs that are started by themselves."""
    queues: Queues
    """Queues: what waits there, pause and resume."""
    memory: Memories
    """Long-term memory."""
    workers: Workers
    """The workers that share the database."""
    database: Database
    """The schema, sizes, checks and pruning."""

    @overload
    async def enqueue(
        self, job: Handler[None, O], /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[O]: ...
    @overload
    async def enqueue(
        self, job: Handler[I, O], input: I, /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[O]: ...
    @overload
    async def enqueue(
        self, job: str, input: Any = None, /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[Any]: ...
    async def enqueue(
        self, job: Any, input: Any = None, /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[Any]:
        """See `Jobs.enqueue`."""
        return await self.jobs.enqueue(job, input, tx=tx, **options)

    async def enqueue_many(self, requests: Iterable[Request], *, tx: object = None) -> list[Handle[Any]]:
        """See `Jobs.enqueue_many`."""
        return await self.jobs.enqueue_many(requests, tx=tx)

    async def signal(self, job: JobId | HasId, key: str, payload: Any = None, *, id: str | None = None) -> Signal:
        """See `Jobs.signal`."""
        return await self.jobs.signal(job, key, payload, id=id)

    async def approve(
        self,
        approval_id: JobId | None = None,
        *,
        token: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        edited: Any = ...,
        expected_digest: str | None = None,
        remember: RuleScope | None = None,
        remember_for: Duration | None = None,
    ) -> Approval:
        """See `Approvals.approve`."""
        return await self.approvals.approve(
            approval_id,
            token=token,
            by=by,
            comment=comment,
            edited=edited,
            expected_digest=expected_digest,
            remember=remember,
            remember_for=remember_for,
        )

    async def deny(
        self,
        approval_id: JobId | None = None,
        *,
        token: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        remember: RuleScope | None = None,
        remember_for: Duration | None = None,
    ) -> Approval:
        """See `Approvals.deny`."""
        return await self.approvals.deny(
            approval_id, token=token, by=by, comment=comment, remember=remember, remember_for=remember_for
        )
