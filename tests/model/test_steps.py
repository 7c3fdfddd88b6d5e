"""The steps of a job, read from its log."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.model.events import Event
from perdure.model.ids import uuid7
from perdure.model.steps import steps_of

BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
JOB = uuid7()


def log(*happened: tuple[str, dict[str, Any]]) -> list[Event]:
    """Events of one job, a second apart."""
    return [
        Event(JOB, version, type, BEGIN + timedelta(seconds=version), payload)
        for version, (type, payload) in enumerate(happened, 1)
    ]


NAP = ("wait_started", {"key": "nap", "kind": "timer"})
ASKS = ("approval_requested", {"key": "ok", "kind": "approval"})
DENIED = ("approval_decided", {"key": "ok", "decision": "DENIED", "actor": "ann"})


@pytest.mark.parametrize("end", ["job_completed", "job_failed", "job_cancelled", "job_deadlettered"])
def test_the_end_of_a_job_cuts_off_what_is_open(end: str) -> None:
    begun = ("node_started", {"key": "read"})
    steps = steps_of(log(NAP, ASKS, begun, (end, {})))
    assert [(s.key, s.status) for s in steps] == [("nap", "cut off"), ("ok", "cut off"), ("read", "cut off")]


@pytest.mark.parametrize("type", ["run_started", "job_retrying", "job_parked"])
def test_waits_outlive_an_attempt(type: str) -> None:
    assert [s.status for s in steps_of(log(NAP, ASKS, (type, {})))] == ["waiting", "waiting"]


def test_a_denial_that_fails_the_job_is_an_answer() -> None:
    events = log(NAP, ASKS, DENIED, ("job_failed", {"key": "ok", "error": "denied"}))
    assert [s.status for s in steps_of(events[:3])] == ["waiting", "waiting"]
    nap, ok = steps_of(events)
    assert nap.status == "cut off"
    assert (ok.status, ok.result, ok.seconds) == ("done", "DENIED by ann", 1.0)
