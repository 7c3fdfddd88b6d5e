"""The attempt that the running code belongs to, so that log lines can name it."""

from __future__ import annotations

from contextvars import ContextVar

from perdure.model.jobs import ClaimedJob

current_attempt: ContextVar[ClaimedJob | None] = ContextVar("perdure_attempt", default=None)
"""Set by the worker when the attempt begins; tasks and threads that the handler starts through `ctx` inherit it."""


def attempt_ids() -> dict[str, str | int]:
    """job_id, kind, attempt and worker of the running attempt; empty outside of one."""
    claimed = current_attempt.get()
    if claimed is None:
        return {}
    lease = claimed.lease
    return {"job_id": str(lease.job_id), "kind": claimed.kind, "attempt": lease.attempt, "worker": lease.worker_id}
