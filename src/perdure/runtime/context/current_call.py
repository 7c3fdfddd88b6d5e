"""The step or tool call that the running code belongs to."""

from __future__ import annotations

import contextvars
import hashlib
from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from perdure.model.jobs import Lease


@dataclass(slots=True)
class RunningCall:
    """A call of the function of a step or tool.

    lease: of its attempt. kind: step or tool. number: counts the calls that this attempt makes under this key, from 1. names: how
    often each name was used by what the function itself reports. state: what the function set of the tools' state, JSON by key.
    """

    lease: Lease
    kind: str
    key: str
    number: int
    names: Counter[str] | None = None
    outer: RunningCall | None = None
    """The call whose function makes this one."""
    state: dict[str, str] | None = None

    def key_of(self, name: str) -> str:
        """The key of something that the function reports: it counts for this call alone, so it names step, attempt and call."""
        if self.names is None:  # most functions report nothing
            self.names = Counter()
        self.names[name] += 1
        count = self.names[name]
        repeated = "" if count == 1 else f"#{count}"
        return f"{name}@{self.kind}:{self.key}/{self.lease.attempt}.{self.number}{repeated}"


running_call: contextvars.ContextVar[RunningCall] = contextvars.ContextVar("perdure_call")


def current_call() -> RunningCall:
    """The step or tool call this code runs in. Raises LookupError outside."""
    return running_call.get()


def idempotency_key() -> str:
    """The key of the step or tool call this code runs in: stable across retries, crashes and workers.

    Give it to the other side (an `Idempotency-Key` header) and the effect happens once. Raises LookupError outside.
    """
    try:
        call = running_call.get()
    except LookupError:
        raise LookupError("idempotency_key() is known only inside a function given to ctx.step or ctx.tool") from None
    return idempotency_key_of(call.lease.job_id, call.kind, call.key)


def idempotency_key_of(job_id: UUID, kind: str, key: str) -> str:
    """A hash of a job and a call of it: the same in every attempt. kind: step or tool."""
    return hashlib.sha256(f"{job_id}:{kind}:{key}".encode()).hexdigest()[:32]
