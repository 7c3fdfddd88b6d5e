"""Schedules: jobs that are started by themselves."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from perdure.model.errors import InvalidInput, InvalidPriority, NotFound, NotJson, TooLarge, UnknownHandler
from perdure.model.jobs import Enqueued
from perdure.model.schedules import Schedule
from perdure.model.timing import Duration
from perdure.operations.registry import Role, operation

if TYPE_CHECKING:
    from perdure import Client


@operation("schedules.list", role=Role.VIEWER)
async def list_schedules(client: Client, *, limit: int = 1000, after: str | None = None) -> list[Schedule]:
    """The schedules in the order of their ids."""
    return await client.schedules.list(limit=limit, after=after)


@operation("schedules.get", role=Role.VIEWER, errors=(NotFound,))
async def get_schedule(client: Client, id: str) -> Schedule:
    """One schedule."""
    return await client.schedules.get(id)


@operation("schedules.next", role=Role.VIEWER, errors=(NotFound, InvalidInput))
async def next_times(client: Client, id: str, count: int = 5) -> list[datetime]:
    """The next times of a schedule."""
    return await client.schedules.next(id, count)


@operation(
    "schedules.add", role=Role.OPERATOR, errors=(InvalidInput, UnknownHandler, NotJson, TooLarge, InvalidPriority)
)
async def add_schedule(
    client: Client,
    id: str,
    kind: str,
    input: Any = None,
    *,
    cron: str | None = None,
    every: Duration | None = None,
    at: datetime | None = None,
    timezone: str | None = None,
    overlap: str | None = None,
    catch_up: Duration | None = None,
    jitter: Duration | None = None,
    queue: str | None = None,
    priority: int | None = None,
    max_retries: int | None = None,
) -> Schedule:
    """Store a schedule, or change the one of this id. What is None is as `Schedules.add` has it."""
    options: dict[str, Any] = {
        "cron": cron,
        "every": every,
        "at": at,
        "timezone": timezone,
        "overlap": overlap,
        "catch_up": catch_up,
        "jitter": jitter,
        "queue": queue,
        "priority": priority,
        "max_retries": max_retries,
    }
    return await client.schedules.add(
        id, kind, input, **{name: value for name, value in options.items() if value is not None}
    )


@operation("schedules.pause", role=Role.OPERATOR, errors=(NotFound,))
async def pause_schedule(client: Client, id: str) -> Schedule:
    """Let a schedule start no jobs until it is resumed."""
    return await client.schedules.pause(id)


@operation("schedules.resume", role=Role.OPERATOR, errors=(NotFound,))
async def resume_schedule(client: Client, id: str) -> Schedule:
    """Let a paused schedule go on."""
    return await client.schedules.resume(id)


@operation("schedules.trigger", role=Role.OPERATOR, errors=(NotFound,))
async def trigger_schedule(client: Client, id: str) -> Enqueued:
    """Start a job of a schedule now."""
    handle = await client.schedules.trigger(id)
    return Enqueued(handle.id, handle.created)


@operation("schedules.backfill", role=Role.OPERATOR, errors=(NotFound, InvalidInput))
async def backfill_schedule(
    client: Client, id: str, start: datetime, end: datetime, *, dry_run: bool = False
) -> list[datetime]:
    """Start the jobs of all times of a schedule between two moments."""
    return await client.schedules.backfill(id, start, end, dry_run=dry_run)


@operation("schedules.remove", role=Role.OPERATOR, errors=(NotFound,))
async def remove_schedule(client: Client, id: str) -> None:
    """Delete a schedule; its jobs stay."""
    await client.schedules.remove(id)
