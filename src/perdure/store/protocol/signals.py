"""Signals to jobs and agents. Part of `protocol.Store`."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from perdure.model.jobs import Lease, Page
from perdure.model.signals import AgentSignal, NewAgentSignal, NewSignal, Signal, TakenSignals


class SignalStore(Protocol):
    """What is sent to jobs and agents under a key, and taken once by a wait for that key.

    A signal to an agent is pending until a job of that agent gets it. That happens once, in the transaction which writes
    `signal_received` into the log of that job; from then on it is a signal of the job, with the same id. Jobs get it:

    - by a wait for its key that is open when it is sent, or that opens later: the oldest, see `AgentStore.deliver`;
    - by their first claim, in its transaction: the job claimed first gets all that are pending, at most `MOST_BOUND`;
    - when a message starts or wakes them, in the transaction that does so;
    - when they take what is pending, see `take_signals`.

    Expired ones are given to no job.
    """

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

    async def take_signals(self, lease: Lease, agent_id: str | None, key: str, event_id: str) -> TakenSignals:
        """Give a job what is pending for its agent, and take what is pending for the job then, the oldest first: at most
        `MOST_BOUND`, and as many as one event can hold; its waits that are open have taken theirs before. One transaction, which
        writes `signals_taken` with this key. A second call with the same event id returns what the first one took. Raises
        `LeaseLost`, `JobNotFound`."""
        ...

    async def send_agent_signal(self, signal: NewAgentSignal) -> AgentSignal:
        """Store a signal to an agent, and give it to the oldest open wait for its key of the agent's jobs, in one transaction.

        A second one with the same caller_id is the same signal, as in `send_signal`. Raises `AgentNotFound`, `AgentPaused`,
        `SignalConflict`.
        """
        ...

    async def list_agent_signals(
        self, agent_id: str, *, pending: bool = False, limit: int = 50, cursor: str | None = None
    ) -> Page[AgentSignal]:
        """The signals to an agent, newest first. pending: only those that no job has got yet, and may."""
        ...
