"""`perdure limits`, and keys on the command line."""

import json

from tests.cli.conftest import Perdure


def test_limits_are_seen_set_and_unset(perdure: Perdure) -> None:
    assert "no job holds a slot" in perdure("limits", "ls").err
    done = perdure("limits", "set", "customer:7", "--max", "3")
    assert done.out == "customer:7: 0 of 3 (set by hand) in use; 0 waiting\n"
    listed = json.loads(perdure("limits", "ls", "--json").out)["items"]
    assert [(item["key"], item["max"], item["in_use"]) for item in listed] == [("customer:7", 3, 0)]
    assert perdure("limits", "get", "customer:7", "-o", "id").out == "customer:7\n"
    assert perdure("limits", "unset", "customer:7").out == "customer:7: 0 of any number in use; 0 waiting\n"
    perdure("limits", "set", "k", "--max", "-1", code=2)


def test_a_job_is_started_with_a_key(perdure: Perdure) -> None:
    id = perdure("jobs", "start", "greet", "--concurrency-key", "k", "--max-concurrent", "2", "-o", "id").out.strip()
    job = perdure("jobs", "get", id, "--json").only
    assert (job["concurrency_key"], job["max_concurrent"], job["held"]) == ("k", 2, False)


def test_a_rate_is_set_and_unset(perdure: Perdure) -> None:
    done = perdure("limits", "set", "mail", "--per-minute", "3")
    assert done.out == "mail: 0 of any number in use; 0 waiting; 0 of 3 started in the last minute\n"
    perdure("jobs", "start", "greet", "--concurrency-key", "k", "--max-per-minute", "2", "-o", "id")
    listed = json.loads(perdure("limits", "ls", "--json").out)["items"]
    assert [(item["key"], item["rate"]["per_minute"], item["rate"]["set_by_hand"]) for item in listed] == [
        ("k", 2, False),
        ("mail", 3, True),
    ]
    assert perdure("limits", "unset", "mail").out == "mail: 0 of any number in use; 0 waiting\n"
    perdure("limits", "set", "mail", code=2)
    perdure("limits", "set", "mail", "--per-minute", "0", code=2)
    perdure("jobs", "start", "greet", "--max-per-minute", "2", code=2)
