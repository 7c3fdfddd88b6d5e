"""The wait for a signal: `ctx.wait_signal`."""

from __future__ import annotations

import shlex
from typing import Any, Protocol
from uuid import UUID

from perdure.model.effects import Effect, bind_signals, release_signal
from perdure.model.explanation import Move, Situation, Why
from perdure.model.jobs import Wait
from perdure.model.signals import Signal
from perdure.model.timing import when
from perdure.model.waits.base import Facts, WaitFault, WaitKind, WaitLine


class _Signals(Protocol):
    async def bound_signal(self, job_id: UUID, wait_key: str) -> Signal | None: ...


class HasSignals(Protocol):
    """A store that has signals."""

    @property
    def signals(self) -> _Signals:
        """The role that reads signals."""
        ...


class SignalWait(WaitKind[HasSignals, Signal]):
    """Its subject is the key of the signal. What sends one, and what opens the wait, binds them and answers the wait."""

    name = "signal"
    noun = "a wait for a signal"
    answered_by = "signal_received"

    async def answer(self, store: HasSignals, job_id: UUID, wait: Wait) -> Signal | None:
        """See `WaitKind.answer`."""
        return await store.signals.bound_signal(job_id, wait.key)

    def opens(self, wait: Wait) -> tuple[Effect, ...]:
        """See `WaitKind.opens`. It takes a signal that came before."""
        return (*super().opens(wait), *bind_signals(wait.subject_id or ""))

    def closes(self, wait: Wait, *, answered: bool) -> tuple[Effect, ...]:
        """See `WaitKind.closes`. A signal that came as it ended goes to another wait, or stays pending."""
        closed = super().closes(wait, answered=answered)
        return closed if answered else (release_signal(wait.key), *closed, *bind_signals(wait.subject_id or ""))

    def recorded(self, answer: Any) -> dict[str, Any]:
        """See `WaitKind.recorded`."""
        return {} if answer is None else {"signal": str(answer.id), "answer": answer.payload}

    def line(self, wait: Wait, seen: Situation) -> WaitLine | None:
        """See `WaitKind.line`."""
        short = f"signal '{wait.subject_id}' is to come"
        if wait.until is not None:
            short += f"; its time ends {when(wait.until, seen.now)}"
        send = Move("send it", f"perdure jobs signal {seen.job.short_id} {shlex.quote(wait.subject_id or '')} PAYLOAD")
        fact = {"key": wait.subject_id, "wait": wait.key, "until": wait.until}
        return WaitLine(Why.WAITING, f"It waits: {short}.", short, "signals", fact, (send,))

    def woke(self, wait: Wait, seen: Situation) -> str | None:
        """See `WaitKind.woke`."""
        if wait.answered_at is None:
            return None
        return f"Signal '{wait.subject_id}' came {when(wait.answered_at, seen.now)}, "

    def fault(self, wait: Wait, facts: Facts) -> WaitFault | None:
        """See `WaitKind.fault`."""
        bound = next((row for row in facts.rows("signals") if row["wait_key"] == wait.key), None)
        if bound is not None and wait.answered_at is None:
            text = f"'{wait.key}' has taken a signal, and is not answered"
            return WaitFault(text, facts.time(bound, "consumed_at") or facts.now)
        if bound is None and wait.answered_at is not None:
            return WaitFault(f"its wait for '{wait.key}' is answered, and no signal was taken", None)
        return None


SIGNAL = SignalWait()
