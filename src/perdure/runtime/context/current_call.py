"""The step or tool call that the running code belongs to."""

from __future__ import annotations

import contextvars
import hashlib
from uuid import UUID

running_call: contextvars.ContextVar[tuple[UUID, str]] = contextvars.ContextVar("perdure_call")


def current_call() -> tuple[UUID, str]:
    """The job and the key of the step or tool call this code runs in. Raises LookupError outside."""
    return running_call.get()


def idempotency_key() -> str:
    """The key of the step or tool call this code runs in: stable across retries, crashes and workers.

    Give it to the other side (an `Idempotency-Key` header) and the effect happens once. Raises LookupError outside.
    """
    try:
        return idempotency_key_of(*running_call.get())
    except LookupError:
        raise LookupError("idempotency_key() is known only inside a function given to ctx.step or ctx.tool") from None


def idempotency_key_of(job_id: UUID, key: str) -> str:
    """A hash of a job and a call of it: the same in every attempt."""
    return hashlib.sha256(f"{job_id}:{key}".encode()).hexdigest()[:32]
