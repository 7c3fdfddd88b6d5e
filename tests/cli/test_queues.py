"""`perdure queues`."""

import json

from tests.cli.conftest import Perdure


def test_a_queue_is_paused_seen_explained_and_resumed(perdure: Perdure) -> None:
    assert "no queue is paused" in perdure("queues", "ls").err
    done = perdure("queues", "pause", "mail", "--reason", "provider down")
    assert done.out.startswith("queue mail is paused by ")
    assert done.out.endswith(": provider down\n")
    id = perdure("jobs", "start", "greet", "--queue", "mail", "-o", "id").out.strip()
    [queue] = json.loads(perdure("queues", "ls", "--json").out)["items"]
    assert (queue["name"], queue["counts"], queue["pause"]["reason"]) == ("mail", {"PENDING": 1}, "provider down")
    table = perdure("queues", "ls").out
    assert "paused" in table
    assert "1 PENDING" in table
    assert perdure("jobs", "explain", id, "--fields", "code", "-o", "json").json["code"] == "paused"
    assert "queue 'mail' is paused by" in perdure("jobs", "explain", id).out
    assert perdure("queues", "resume", "mail", "-o", "id").out == "mail\n"
    assert "is not paused" in perdure("queues", "resume", "mail").err
    assert "open" in perdure("queues", "ls").out
    [pause] = json.loads(perdure("queues", "pauses", "mail", "--json").out)["items"]
    assert pause["reason"] == "provider down"
    assert pause["resumed_by"]
    perdure("queues", "pause", "*", code=2)
