"""Waiting for signals from inside a job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog

from perdure.model.current_attempt import attempt_ids
from perdure.model.effects import Effect, close_wait, look_at_mailbox, refuse_signal
from perdure.model.errors import InvalidInput, LeaseLost, SignalTimeout, Suspended
from perdure.model.events import NewEvent
from perdure.model.ids import new_event_id
from perdure.model.jobs import Wait
from perdure.model.signals import ReceivedSignal, Signal
from perdure.model.waits import SIGNAL
from perdure.runtime import codec
from perdure.runtime.context.deliver_now import deliver_now
from perdure.runtime.context.waits import completed, started
from perdure.runtime.outcomes import clean
from perdure.runtime.run import Run

log = structlog.get_logger("perdure.run")

_MOST_TEXT = 500


async def wait_signal(run: Run, key: str, name: str, model: Any, timeout: float | None) -> Any:
    """Wait for a signal whose key is `name`, under the wait `key`; see `JobContext.wait_signal`."""
    codec.check_type(model, _what(name))
    read = partial(fitting, run, model=model)
    done = await completed(run, SIGNAL, key, duration=timeout, subject_id=name, answer_of=read, also=beginning(run))
    if "signal" not in done:
        raise SignalTimeout(name)
    return payload_of(done, name, model)


def beginning(run: Run) -> tuple[Effect, ...]:
    """What else commits with the beginning of a wait: pending signals of the job's agent, if it has one, are looked at."""
    return () if run.of_agent is None else (look_at_mailbox(None),)


async def fitting(run: Run, wait: Wait, model: Any) -> Signal | None:
    """The first signal whose payload fits; one that does not is set aside, and the wait goes on. None: its time has come."""
    while (signal := await _next(run, wait)) is not None:
        try:
            codec.decode(json.dumps(signal.payload), model, _what(signal.key))
        except InvalidInput as error:
            await _refuse(run, wait, signal, clean(str(error))[:_MOST_TEXT])
        else:
            return signal
    return None


async def _next(run: Run, wait: Wait) -> Signal | None:
    row = run.history.rows.get((wait.kind, wait.key))
    if run.of_agent is not None and (row is None or row.answered_at is None):
        await deliver_now(run, run.of_agent.agent_id)
    return await run.waits.answer(SIGNAL, wait)


def payload_of(done: Mapping[str, Any], name: str, model: Any) -> Any:
    """The payload of a signal, from what `wait_completed` holds. Raises InvalidInput if it does not fit the model."""
    return codec.decode(json.dumps(done["answer"]), model, _what(name))


async def _refuse(run: Run, wait: Wait, signal: Signal, error: str) -> None:
    """Were the job to fail of it, a typing error of a sender would end it."""
    said = {"key": wait.key, "signal": str(signal.id), "subject": signal.key, "error": error}
    fresh = Wait(wait.key, wait.kind, wait.until, wait.subject_id)
    await run.record(
        [NewEvent("signal_refused", json.dumps(said)), started(fresh)],
        refuse_signal(wait.key, error),
        close_wait(wait.kind, wait.key),
        *SIGNAL.opens(fresh),
        *beginning(run),
    )
    run.history.rows.pop((wait.kind, wait.key), None)
    log.warning("a signal does not fit, and was set aside", **attempt_ids(), signal=signal.key, error=error)


async def take_all(run: Run, key: str) -> list[ReceivedSignal]:
    """Take what is pending for the job and its agent; see `JobContext.receive_signals`."""
    known = run.history.taken_signals.get(key, [])
    signals = [signal for taken in known for signal in taken.signals]
    more = known[-1].more if known else True
    agent_id = None if run.of_agent is None else run.of_agent.agent_id
    while more:
        if run.pending is not None:
            await run.record(())
        if run.stop_reason is not None:
            raise Suspended(run.stop_reason)
        try:
            with run.busy():
                taken = await run.store.signals.take_signals(run.lease, agent_id, key, new_event_id())
        except LeaseLost:
            run.lease_lost()
            raise Suspended("lease lost") from None
        signals += taken.signals
        more = taken.more
    return signals


def _what(name: str) -> str:
    return f"the payload of signal '{name}'"
