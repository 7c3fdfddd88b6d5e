"""How a worker works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perdure.model.jobs import DEFAULT_GRACE_SECONDS, DEFAULT_LEASE_SECONDS, DEFAULT_QUEUE
from perdure.runtime.chores import INTERVAL
from perdure.runtime.lease_times import LeaseLength
from perdure.runtime.retention import Retention

MOST_LEASES = 10
"""How many lengths of a lease a blocked worker keeps what it holds: other workers can do the rest."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """queues: served in turn, each by priority. concurrency: jobs run at once. lease: seconds until an unrenewed job is taken
    over. linger: seconds that a wait may last without being parked. drain_timeout: seconds a graceful stop waits for steps.
    grace: seconds a handler may take to stop after a cancel or its timeout. max_hung: calls that do not stop, at which the
    process is to be replaced; None for half of concurrency, at least 8. max_blocked: seconds without a turn of the event loop, at
    which it is; None for ten times the lease. retention: which finished jobs it prunes, None for none.
    chores: seconds between two checks for jobs of crashed workers and for deadlines. kind_leases: of kinds that have a lease
    of another length."""

    queues: tuple[str, ...] = (DEFAULT_QUEUE,)
    concurrency: int = 100
    lease: float = DEFAULT_LEASE_SECONDS
    linger: float = 1.0
    drain_timeout: float = 30.0
    grace: float = DEFAULT_GRACE_SECONDS
    max_hung: int | None = None
    max_blocked: float | None = None
    retention: Retention | None = None
    chores: float = INTERVAL
    kind_leases: Mapping[str, LeaseLength] = field(default_factory=dict)

    @property
    def most_blocked(self) -> float:
        """Seconds without a turn of the event loop, at which the process is to be replaced."""
        return MOST_LEASES * self.lease if self.max_blocked is None else self.max_blocked

    @property
    def most_hung(self) -> int:
        """How many calls may hang before the process is to be replaced."""
        return max(8, self.concurrency // 2) if self.max_hung is None else self.max_hung
