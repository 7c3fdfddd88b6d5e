"""Signals to jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.model.errors import InvalidInput, SignalConflict, SignalTooLate
from perdure.model.signals import Signal
from perdure.operations.jobs import NO_SUCH_JOB
from perdure.operations.registry import Role, operation

if TYPE_CHECKING:
    from perdure import Client


@operation("jobs.signal", role=Role.OPERATOR, errors=(*NO_SUCH_JOB, SignalTooLate, SignalConflict, InvalidInput))
async def signal_job(client: Client, job_id: str, key: str, payload: Any = None, *, id: str | None = None) -> Signal:
    """Send a signal to a job that waits for this key, or will. id: a second signal of the job with it is the same one."""
    return await client.jobs.signal(job_id, key, payload, id=id)
