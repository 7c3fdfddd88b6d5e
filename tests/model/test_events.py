"""The taxonomy of events: each type one class, every transition a type, replay free of trace."""

import json
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from perdure.model.events import (
    EVENT_TYPES,
    LIFECYCLE_TYPES,
    REPLAY_TYPES,
    RESERVED_TYPES,
    Event,
    EventClass,
    NewEvent,
    event_class,
)
from perdure.model.states import TRANSITIONS, Status, transition_event

PAIRS = [(old, new) for old, targets in TRANSITIONS.items() for new in sorted(targets)]


@pytest.mark.parametrize(("old", "new"), [(None, Status.PENDING), *PAIRS])
def test_every_transition_has_a_lifecycle_type(old: Status | None, new: Status) -> None:
    assert EVENT_TYPES[transition_event(old, new)].cls is EventClass.LIFECYCLE


def test_lifecycle_types_are_exactly_those_of_transitions() -> None:
    """So that a row's status is the fold of its lifecycle events, and nothing else can claim to be one."""
    assert {"job_created"} | {transition_event(*pair) for pair in PAIRS} == LIFECYCLE_TYPES


def test_the_types_of_the_design_documents_exist() -> None:
    run = "job_created plan_generated node_started node_finished tool_called tool_returned"
    assert {*run.split(), "job_completed", "job_failed"} <= set(EVENT_TYPES)


def test_each_type_has_one_class_and_says_what_it_means() -> None:
    assert {t.cls for t in EVENT_TYPES.values()} == set(EventClass)
    assert all(t.says and name == name.lower() for name, t in EVENT_TYPES.items())


def test_an_unknown_type_is_kept_as_trace() -> None:
    assert event_class("somebody_elses_event") is EventClass.TRACE
    assert Event(uuid4(), 1, "somebody_elses_event", datetime.now(UTC), {}).cls is EventClass.TRACE


def test_replay_needs_no_trace() -> None:
    assert {EVENT_TYPES[name].cls for name in REPLAY_TYPES} <= {
        EventClass.STEP,
        EventClass.COORDINATION,
        EventClass.RECORDED,
    }


def test_only_a_plan_may_be_appended_by_others_under_a_known_name() -> None:
    assert set(EVENT_TYPES) - RESERVED_TYPES == {"plan_generated"}


def test_no_type_carries_a_token() -> None:
    assert not [name for name, t in EVENT_TYPES.items() if any("token" in key and key != "tokens" for key in t.keys)]


def test_a_new_event_has_an_id_of_its_own() -> None:
    one, other = NewEvent("note"), NewEvent("note")
    assert one.event_id != other.event_id
    assert json.loads(one.payload) == {}
