"""The times of one lease, as an attempt sees them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from perdure.model.jobs import ClaimedJob


class LeaseLength(NamedTuple):
    """ttl: seconds until an unrenewed job is taken over. every: seconds between two renewals."""

    ttl: float
    every: float


class LeaseTimes(Protocol):
    """A job and the times of its lease, by the store's clock."""

    claimed: ClaimedJob
    valid_until: float
    """Another worker may have the job from then on."""
    claimed_at: float
    """When its claim was answered."""
    ttl: float
    """Seconds from now to which a write renews it."""
    ends_at: float | None
    """When the lease ends for good and is renewed no more; None where the attempt has no limit."""

    def renewed(self, asked_at: float, ttl: float) -> None:
        """The database has renewed the lease to `ttl` seconds after `asked_at`."""
        ...
