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
