"""Enqueueing a job."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from perdure.model.budgets import Budget
from perdure.model.errors import IdempotencyConflict, InvalidInput, UniqueConflict, UnknownHandler
from perdure.model.jobs import Enqueued
from perdure.model.stuck import Stuck
from perdure.model.timing import Duration
from perdure.model.tool_approvals import ApprovalContext
from perdure.model.unique import Unique
from perdure.operations.registry import Role, operation

if TYPE_CHECKING:
    from perdure import Client


@operation(
    "jobs.enqueue", role=Role.OPERATOR, errors=(InvalidInput, UnknownHandler, IdempotencyConflict, UniqueConflict)
)
async def enqueue_job(
    client: Client,
    kind: str,
    input: Any = None,
    *,
    queue: str | None = None,
    priority: int | None = None,
    max_retries: int | None = None,
    delay: Duration | None = None,
    run_at: datetime | None = None,
    deadline: datetime | None = None,
    idempotency_key: str | None = None,
    goal: str | None = None,
    concurrency_key: str | None = None,
    max_concurrent: int | None = None,
    max_per_minute: int | None = None,
    agent: str | None = None,
    session: str | None = None,
    tags: tuple[str, ...] = (),
    budget: Budget | None = None,
    approval_context: ApprovalContext | None = None,
    stuck: Stuck | None = None,
    fields: Mapping[str, Any] | None = None,
    unique: Unique | None = None,
    elsewhere: bool = False,
) -> Enqueued:
    """Store a job; once this returns it is never lost. What is None comes from the handler's policy.

    kind: the name of the handler. The input is checked against it, unless `elsewhere` says that the handler is in another
    process. fields: what is said of the job, such as user_id, title and metadata. Otherwise as `Jobs.enqueue`.
    """
    options: dict[str, Any] = {
        "queue": queue,
        "priority": priority,
        "max_retries": max_retries,
        "delay": delay,
        "run_at": run_at,
        "deadline": deadline,
        "idempotency_key": idempotency_key,
        "goal": goal,
        "concurrency_key": concurrency_key,
        "max_concurrent": max_concurrent,
        "max_per_minute": max_per_minute,
        "agent": agent,
        "session": session,
        "tags": tags or None,
        "budget": budget,
        "approval_context": approval_context,
        "stuck": stuck,
        "unique": unique,
        "elsewhere": elsewhere or None,
    }
    options |= fields or {}
    handle = await client.enqueue(kind, input, **{name: value for name, value in options.items() if value is not None})
    return Enqueued(handle.id, handle.created)
