"""Signals to jobs. Part of `protocol.Store`."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from perdure.model.signals import NewSignal, Signal


class SignalStore(Protocol):
    """What is sent to jobs under a key, and taken once by a wait for that key."""

    async def send_signal(self, signal: NewSignal) -> Signal:
        """Store a signal and its `signal_received` event. The oldest open wait of the job for its key takes it in the same
        transaction, which wakes the job; without one the signal is pending until a wait begins.

        A second one with the same caller_id is the same signal: it is returned, and nothing is written; `SignalConflict` if its
        key or payload differ. Raises `JobNotFound`; `SignalTooLate` if the job has ended.
        """
        ...

    async def bound_signal(self, job_id: UUID, wait_key: str) -> Signal | None:
        """What the job's wait with this key has taken; None if nothing."""
        ...

    async def list_signals(self, job_id: UUID, *, pending: bool = False, limit: int = 1000) -> list[Signal]:
        """The signals that were sent to a job, in order; pending=True: those that no wait has taken."""
        ...
