"""The state machine, as a diagram: what a reader of the docs relies on, checked on `TRANSITIONS` itself."""

import pytest

from perdure.model.states import (
    CLAIMABLE,
    FAILURES,
    LEASED,
    SYNONYMS,
    TERMINAL,
    TRANSITIONS,
    Status,
    parse_status,
    transition_event,
)

# The table of docs/design, word for word; a change of the machine changes it here too, knowingly.
DIAGRAM = {
    "PENDING": "RUNNING FAILED CANCELLED",
    "RUNNING": "COMPLETED FAILED RETRY WAITING PARKED WAITING_FOR_APPROVAL CANCELLED DEADLETTER",
    "RETRY": "RUNNING CANCELLED FAILED DEADLETTER",
    "WAITING": "RUNNING PARKED RETRY FAILED CANCELLED DEADLETTER",
    "PARKED": "RUNNING FAILED CANCELLED DEADLETTER",
    "WAITING_FOR_APPROVAL": "RUNNING FAILED CANCELLED",
    "COMPLETED": "",
    "FAILED": "",
    "CANCELLED": "",
    "DEADLETTER": "",
}


def test_the_machine_is_the_one_in_the_documents() -> None:
    drawn = {Status(old): {Status(word) for word in new.split()} for old, new in DIAGRAM.items()}
    assert {old: set(new) for old, new in TRANSITIONS.items()} == drawn


def test_every_state_has_a_line_in_the_table() -> None:
    assert set(TRANSITIONS) == set(Status)
    assert len(Status) == 10


def test_every_state_can_be_reached_from_pending() -> None:
    reached, frontier = {Status.PENDING}, {Status.PENDING}
    while frontier:
        frontier = {new for old in frontier for new in TRANSITIONS[old]} - reached
        reached |= frontier
    assert reached == set(Status)


@pytest.mark.parametrize("status", [s for s in Status if s not in TERMINAL])
def test_every_live_state_can_end(status: Status) -> None:
    """Nothing is stuck by design: from each state a job can be cancelled and can fail, directly."""
    assert Status.CANCELLED in TRANSITIONS[status]
    assert Status.FAILED in TRANSITIONS[status]


def test_terminal_states_are_those_that_nothing_leaves() -> None:
    assert {"COMPLETED", "FAILED", "CANCELLED", "DEADLETTER"} == TERMINAL
    assert [s for s in Status if s.terminal] == [s for s in Status if s in TERMINAL]


def test_no_state_leads_to_itself_and_none_back_to_pending() -> None:
    assert all(old not in new and Status.PENDING not in new for old, new in TRANSITIONS.items())


def test_each_live_state_is_either_held_by_a_worker_or_claimable() -> None:
    assert set(Status) == LEASED | CLAIMABLE | TERMINAL
    assert not LEASED & CLAIMABLE
    assert all(Status.RUNNING in TRANSITIONS[s] for s in CLAIMABLE)
    assert [s for s in Status if s.leased] == [s for s in Status if s in LEASED]


def test_failures_are_terminal() -> None:
    assert {Status.FAILED, Status.DEADLETTER} == FAILURES
    assert FAILURES < TERMINAL


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("PENDING", "PENDING"),
        ("pending", "PENDING"),
        (" Retry ", "RETRY"),
        ("waiting-for-approval", "WAITING_FOR_APPROVAL"),
        ("waiting_for_approval", "WAITING_FOR_APPROVAL"),
        ("queued", "PENDING"),
        ("leased", "RUNNING"),
        ("running", "RUNNING"),
        ("succeeded", "COMPLETED"),
        ("canceled", "CANCELLED"),
        ("cancelled", "CANCELLED"),
        ("deadletter", "DEADLETTER"),
        ("dead", "DEADLETTER"),
    ],
)
def test_a_status_is_understood_as_people_type_it(typed: str, meant: str) -> None:
    assert parse_status(typed) is Status(meant)


@pytest.mark.parametrize("typed", ["", "done", "RUN", "queue", "COMPLETED,FAILED"])
def test_an_unknown_status_names_the_known_ones(typed: str) -> None:
    with pytest.raises(ValueError, match=r"unknown status .* known: PENDING, RUNNING, RETRY"):
        parse_status(typed)


def test_no_synonym_hides_a_state() -> None:
    assert not set(SYNONYMS) & {s.value for s in Status}
    assert set(SYNONYMS.values()) <= set(Status)


def test_the_event_of_a_transition_says_what_became_of_the_job() -> None:
    assert transition_event(None, Status.PENDING) == "job_created"
    assert transition_event(Status.PENDING, Status.RUNNING) == "run_started"
    assert transition_event(Status.PARKED, Status.RUNNING) == "run_started"
    assert transition_event(Status.WAITING, Status.RUNNING) == "job_resumed"
    assert transition_event(Status.RUNNING, Status.COMPLETED) == "job_completed"
    assert transition_event(Status.RETRY, Status.DEADLETTER) == "job_deadlettered"
