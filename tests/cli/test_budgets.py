"""Budgets and what is said of a job on the command line."""

import json

from tests.cli.conftest import Perdure


def test_a_job_is_started_with_a_budget_and_shows_what_is_left(perdure: Perdure) -> None:
    options = "--budget-tokens 1000 --budget-cost 1.50 --budget-tool-calls 3 --budget-time 2h --budget-children 2"
    id = perdure("jobs", "start", "greet", *options.split(), "--on-breach", "fail", "-o", "id").out.strip()
    budget = perdure("jobs", "get", id, "--json").only["budget"]
    assert budget["on_breach"] == "fail"
    assert budget["cost"] == {"limit": "1.5", "spent": "0", "reserved": "0", "left": "1.5"}
    assert {thing: budget[thing]["limit"] for thing in ("tokens", "tool_calls", "wall_time", "children")} == {
        "tokens": 1000,
        "tool_calls": 3,
        "wall_time": 7200.0,
        "children": 2,
    }
    assert "1,000 of 1,000 tokens" in perdure("jobs", "get", id).out
    perdure("jobs", "start", "greet", "--budget-tokens", "-1", code=2)
    perdure("jobs", "start", "greet", "--on-breach", "fail", code=2)


def test_a_job_is_started_with_what_its_caller_says_of_it(perdure: Perdure) -> None:
    conversation = "01890000-0000-7000-8000-000000000000"
    given = {
        "--user-id": "u7",
        "--requester-id": "r1",
        "--conversation-id": conversation,
        "--title": "A title",
        "--description": "What it is about",
        "--category": "research",
        "--metadata": '{"team": "a"}',
        "--timezone": "Europe/Berlin",
    }
    options = [word for pair in given.items() for word in pair]
    id = perdure("jobs", "start", "greet", *options, "-o", "id").out.strip()
    [said] = [
        e["payload"]
        for e in json.loads(perdure("jobs", "events", id, "--json").out)["items"]
        if e["type"] == "fields_set"
    ]
    assert said["fields"] == {
        "user_id": "u7",
        "requester_id": "r1",
        "conversation_id": conversation,
        "title": "A title",
        "description": "What it is about",
        "category": "research",
        "metadata": {"team": "a"},
        "timezone": "Europe/Berlin",
    }
    perdure("jobs", "start", "greet", "--timezone", "Nowhere/At-All", code=2)
    perdure("jobs", "start", "greet", "--metadata", "[1]", code=2)


def test_when_a_job_is_stuck_is_said_at_its_start(perdure: Perdure) -> None:
    options = ("--stuck-after", "10m", "--repair-attempts", "2", "--stuck-repeats", "5")
    id = perdure("jobs", "start", "greet", *options, "-o", "id").out.strip()
    [said] = [
        e["payload"]
        for e in json.loads(perdure("jobs", "events", id, "--json").out)["items"]
        if e["type"] == "stuck_set"
    ]
    assert said == {"stuck": {"after": 600.0, "repair_attempts": 2, "repeats": 5}}
    perdure("jobs", "start", "greet", "--stuck-after", "0", code=2)


def test_the_budgets_of_the_tenant_and_of_an_agent(perdure: Perdure) -> None:
    assert "neither an agent nor the tenant has a budget" in perdure("limits", "budgets").err
    perdure("agents", "create", "ann")
    assert "agent 'ann': 500 tokens of 500 tokens left" in perdure("agents", "set", "ann", "--budget-tokens", "500").err
    done = perdure("limits", "set-budget", "--cost", "2.50", "--on-breach", "fail")
    assert done.out == "the tenant: cost 2.5 of cost 2.5 left\n"
    listed = json.loads(perdure("limits", "budgets", "--json").out)["items"]
    assert [(item["agent"], item["on_breach"]) for item in listed] == [("ann", "ask"), (None, "fail")]
    id = perdure("jobs", "start", "greet", "--agent", "ann", "-o", "id").out.strip()
    shown = perdure("jobs", "get", id).out
    assert "agent 'ann': 500 tokens of 500 tokens left" in shown
    assert "the tenant: cost 2.5 of cost 2.5 left" in perdure("jobs", "explain", id).out
    assert "removed" in perdure("limits", "unset-budget", "--agent", "ann").err
    assert "there was none" in perdure("limits", "unset-budget", "--agent", "ann").err
    perdure("limits", "set-budget", code=2)
    perdure("agents", "set", "unknown", "--budget-tokens", "5", code=3)
