"""Queues: what waits there, pause and resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.errors import InvalidInput
from perdure.model.queues import QueueInfo, QueuePause
from perdure.operations.registry import Role, operation

if TYPE_CHECKING:
    from perdure import Client


@operation("queues.list", role=Role.VIEWER)
async def list_queues(client: Client) -> list[QueueInfo]:
    """The queues in which jobs are that have not ended, and those that are paused."""
    return await client.queues.list()


@operation("queues.pauses", role=Role.VIEWER, errors=(InvalidInput,))
async def list_pauses(client: Client, queue: str | None = None, *, limit: int = 50) -> list[QueuePause]:
    """The pauses of a queue, or of all, the newest first, also those that have ended."""
    return await client.queues.pauses(queue, limit=limit)


@operation("queues.pause", role=Role.OPERATOR, errors=(InvalidInput,))
async def pause_queue(client: Client, queue: str, *, reason: str | None = None) -> QueuePause:
    """Let no worker claim jobs of a queue. Jobs that workers hold go on."""
    return await client.queues.pause(queue, reason)


@operation("queues.resume", role=Role.OPERATOR, errors=(InvalidInput,))
async def resume_queue(client: Client, queue: str, *, reason: str | None = None) -> QueuePause | None:
    """Let workers claim jobs of a queue again; the pause that ended, None if it was not paused."""
    return await client.queues.resume(queue, reason)
