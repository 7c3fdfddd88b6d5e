"""Controlling all jobs that match: cancel, retry, rerun, edit, delete, in batches of one transaction each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from perdure.model.errors import InvalidInput, InvalidPriority, NegativeDelay
from perdure.model.job_changes import BulkResult
from perdure.model.timing import Duration
from perdure.operations.registry import Role, operation
from perdure.operations.selection import JobSelection

if TYPE_CHECKING:
    from perdure import Client

OnBatch = Callable[[int], None]


@operation("jobs.cancel_many", role=Role.OPERATOR, errors=(InvalidInput,))
async def cancel_jobs(
    client: Client,
    which: JobSelection,
    *,
    reason: str | None = None,
    force: bool = False,
    dry_run: bool = False,
    on_batch: OnBatch | None = None,
) -> BulkResult:
    """Cancel all jobs that match and have not ended."""
    return await client.jobs.cancel_many(reason, force=force, dry_run=dry_run, on_batch=on_batch, **which.arguments())


@operation("jobs.retry_many", role=Role.OPERATOR, errors=(InvalidInput,))
async def retry_jobs(
    client: Client,
    which: JobSelection,
    *,
    reason: str | None = None,
    dry_run: bool = False,
    on_batch: OnBatch | None = None,
) -> BulkResult:
    """Make all jobs that match due now: those in RETRY, unless statuses are named."""
    return await client.jobs.retry_many(reason, dry_run=dry_run, on_batch=on_batch, **which.arguments())


@operation("jobs.rerun_many", role=Role.OPERATOR, errors=(InvalidInput,))
async def rerun_jobs(
    client: Client,
    which: JobSelection,
    *,
    reason: str | None = None,
    dry_run: bool = False,
    on_batch: OnBatch | None = None,
) -> BulkResult:
    """Run all jobs again that match, have ended and have no rerun yet: those that failed, unless statuses are named."""
    return await client.jobs.rerun_many(reason, dry_run=dry_run, on_batch=on_batch, **which.arguments())


@operation("jobs.edit_many", role=Role.OPERATOR, errors=(InvalidInput, InvalidPriority, NegativeDelay))
async def edit_jobs(
    client: Client,
    which: JobSelection,
    *,
    priority: int | None = None,
    run_at: datetime | None = None,
    delay: Duration | None = None,
    reason: str | None = None,
    dry_run: bool = False,
    on_batch: OnBatch | None = None,
) -> BulkResult:
    """Give all jobs that match and that no worker holds another priority or time."""
    return await client.jobs.edit_many(
        reason,
        priority=priority,
        run_at=run_at,
        delay=delay,
        dry_run=dry_run,
        on_batch=on_batch,
        **which.arguments(),
    )


@operation("jobs.delete_many", role=Role.OPERATOR, errors=(InvalidInput,))
async def delete_jobs(
    client: Client,
    which: JobSelection,
    *,
    reason: str | None = None,
    dry_run: bool = False,
    on_batch: OnBatch | None = None,
) -> BulkResult:
    """Delete all jobs that match and have ended, permanently."""
    return await client.jobs.delete_many(reason, dry_run=dry_run, on_batch=on_batch, **which.arguments())
