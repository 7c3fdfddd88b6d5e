"""The fold of a log, event by event."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from perdure.model.events import Event
from perdure.model.fold import Folded, fold
from perdure.model.ids import uuid7
from perdure.model.jobs import Wait
from perdure.model.states import Status, transition_event

S = Status
BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
JOB = uuid7()


class Log:
    """Events of one job, a second apart."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.status: Status | None = None
        self.attempt: int | None = None
        self.move(S.PENDING, actor="ann")

    def note(self, type: str, **payload: Any) -> datetime:
        return self._add(type, payload, None)

    def move(self, new: Status, **payload: Any) -> datetime:
        if new is S.RUNNING and self.status is not S.WAITING:
            self.attempt = (self.attempt or 0) + 1
        at = self._add(transition_event(self.status, new), payload, new)
        self.status = new
        return at

    def _add(self, type: str, payload: Any, new: Status | None) -> datetime:
        version = len(self.events) + 1
        at = BEGIN + timedelta(seconds=version)
        previous = self.status if new else None
        self.events.append(Event(JOB, version, type, at, payload, self.attempt, previous, new))
        return at

    def folded(self, version: int | None = None) -> Folded:
        return fold(self.events[:version])


def test_a_life() -> None:
    log = Log()
    created = log.events[0].at
    started = log.move(S.RUNNING, worker="w-1")
    log.note("node_finished", key="search", digest="-", result=[1])
    log.note("checkpoint_saved", state={"n": 1})
    log.note("usage_recorded", tokens=3, cost="0.5")
    retry = log.move(S.RETRY, worker="w-1", error="OSError", retry_count=1, next_retry_at="2026-11-20T01:00:00+00:00")
    log.move(S.RUNNING, worker="w-2")
    log.note("usage_recorded", tokens=4, cost=0.25)
    done = log.move(S.COMPLETED, worker="w-2")
    end = log.folded()
    assert (end.version, end.status, end.attempt, end.retry_count) == (9, S.COMPLETED, 2, 1)
    assert (end.created_at, end.started_at, end.updated_at, end.finished_at) == (created, started, done, done)
    assert (end.cursor, end.checkpoint, end.tokens, end.cost) == ("search", {"n": 1}, 7, Decimal("0.75"))
    assert (end.next_retry_at, end.error_message, end.note) == (None, None, {"worker": "w-2"})
    backoff = log.folded(6)
    assert (backoff.status, backoff.attempt, backoff.updated_at) == (S.RETRY, 1, retry)
    assert backoff.next_retry_at == datetime(2026, 11, 20, 1, tzinfo=UTC)
    born = log.folded(1)
    assert (born.status, born.attempt, born.started_at, born.checkpoint) == (S.PENDING, 0, None, None)
    assert born.note == {"actor": "ann"}
    assert (log.folded(0).version, log.folded(0).created_at) == (0, None)


def test_errors_are_those_of_the_end() -> None:
    log = Log()
    log.move(S.RUNNING, worker="w")
    log.move(S.RETRY, error="once", error_kind="timeout", retry_count=1)
    assert (log.folded().error_message, log.folded().error_kind) == (None, None), "the row has it in the note only"
    log.move(S.RUNNING, worker="w")
    at = log.move(S.DEADLETTER, error="twice", error_kind="exhausted")
    end = log.folded()
    assert (end.error_message, end.error_kind, end.finished_at) == ("twice", "exhausted", at)


def test_when_the_next_attempt_is_due() -> None:
    log = Log()
    log.move(S.RUNNING, worker="w")
    reaped = log.move(S.RETRY, via="reaper", retry_count=1)
    assert log.folded().next_retry_at == reaped, "at once"
    asked = log.note("made_due", actor="ann")
    assert log.folded().next_retry_at == asked
    assert log.folded().updated_at == asked
    log.move(S.RUNNING, worker="w")
    log.move(S.RETRY, via="sql", actor="root")
    assert log.folded().next_retry_at is None, "typed by hand: no event tells"
    pending = Log()
    pending.note("made_due", actor="ann")
    assert pending.folded().next_retry_at is None


def test_open_waits() -> None:
    log = Log()
    approval = UUID(int=7)
    log.move(S.RUNNING, worker="w")
    log.note("wait_started", key="nap", kind="timer", until="2026-11-21T00:00:00+00:00")
    log.note("approval_requested", key="ok", kind="question", approval=str(approval))
    log.move(S.WAITING_FOR_APPROVAL, worker="w")
    nap, ok = Wait("nap", "timer", datetime(2026, 11, 21, tzinfo=UTC)), Wait("ok", "question", None, str(approval))
    assert list(log.folded().waits.values()) == [nap, ok]
    log.note("approval_decided", approval=str(approval), key="ok")
    [_, answered] = log.folded().waits.values()
    assert answered == replace(ok, answered_at=log.events[-1].at)
    log.move(S.RUNNING, worker="w")
    log.note("wait_completed", key="ok", kind="question")
    log.note("wait_completed", key="never begun", kind="timer")
    assert list(log.folded().waits.values()) == [nap]
    log.move(S.FAILED, error="x", error_kind="fatal")
    assert log.folded().waits == {}


def test_what_the_holder_writes_does_not_touch_the_row() -> None:
    log = Log()
    noted_at = log.note("note")
    assert log.folded().updated_at == noted_at
    started = log.move(S.RUNNING, worker="w")
    log.note("node_finished", key="a", digest="-", result=1)
    assert log.folded().updated_at == started
    log.move(S.WAITING, worker="w")
    resumed = log.move(S.RUNNING, worker="w")
    assert (log.folded().updated_at, log.folded().attempt, log.folded().started_at) == (resumed, 1, started)


def test_events_of_any_shape() -> None:
    log = Log()
    log.events.append(Event(JOB, 2, "note", BEGIN, [1, 2]))
    log.events.append(Event(JOB, 3, "note", BEGIN, None))
    log.events.append(Event(JOB, 4, "wait_started", BEGIN, {"key": 5}))
    assert (log.folded().version, log.folded().waits) == (4, {})


def test_running_by_hand_is_no_start() -> None:
    log = Log()
    log.move(S.RUNNING, actor="root", via="sql")
    assert (log.folded().started_at, log.folded().attempt) == (None, 1)
