"""`perdure agents`, and jobs of agents on the command line."""

import json

from tests.cli.conftest import Perdure


def test_an_agent_from_its_creation_to_its_first_message(perdure: Perdure) -> None:
    assert "no agent yet" in perdure("agents", "ls").err
    made = perdure("agents", "create", "ann", "--kind", "greet", "--meta", '{"persona": "kind"}', "--json").only
    assert (made["id"], made["kind"], made["meta"], made["status"]) == ("ann", "greet", {"persona": "kind"}, "idle")
    assert perdure("agents", "set", "ann", "--batch", "5", "--intake", "inbox", "--json").only["batch"] == 5
    sent = json.loads(perdure("agents", "send", "ann", "hello", "--json").out)
    assert sent["created"]
    job = perdure("jobs", "get", sent["job_id"], "--json").only
    assert (job["kind"], job["agent_id"], job["goal"]) == ("greet", "ann", "process inbox")
    waiting = perdure("agents", "send", "ann", "--input", '{"n": 1}', "--key", "k", "-o", "id").out.strip()
    again = perdure("agents", "send", "ann", "--input", '{"n": 1}', "--key", "k")
    assert (again.out.strip(), "used before" in again.err) == (waiting, True)
    listed = json.loads(perdure("agents", "inbox", "ann", "--json").out)["items"]
    assert [(m["payload"], m["consumed_by_job_id"]) for m in listed] == [({"n": 1}, None), ("hello", sent["job_id"])]
    assert len(json.loads(perdure("agents", "inbox", "ann", "--pending", "--json").out)["items"]) == 1
    assert json.loads(perdure("agents", "outbox", "ann", "--json").out)["items"] == []
    assert perdure("agents", "ls", "-o", "id").out == "ann\n"
    assert perdure("agents", "ls", "--status", "failed", "-o", "id").out == ""


def test_a_paused_agent_refuses_messages(perdure: Perdure) -> None:
    perdure("agents", "create", "ann")
    assert perdure("agents", "get", "ann").err == ""
    perdure("agents", "send", "ann", "later", "--delay", "1h")
    assert "parked, paused" in perdure("agents", "pause", "ann").out
    assert "1 message waits; deliver again: " in perdure("agents", "get", "ann").err
    assert perdure("agents", "get", "ann", "--json").only["waiting_messages"] == 1
    refused = perdure("agents", "send", "ann", "hello", code=5)
    assert "agent 'ann' was paused at" in refused.err
    assert "perdure agents resume ann" in refused.err
    assert perdure("agents", "resume", "ann", "--json").only["paused_at"] is None


def test_bad_input(perdure: Perdure) -> None:
    perdure("agents", "get", "ann", code=3)
    perdure("agents", "send", "ann", "hello", code=3)
    perdure("agents", "create", "ann")
    perdure("agents", "create", "ann", code=5)
    perdure("agents", "create", "b b", code=2)
    perdure("agents", "set", "ann", code=2)
    perdure("agents", "set", "ann", "--on-busy", "sleep", code=2)
    perdure("agents", "send", "ann", code=2)
    perdure("agents", "send", "ann", "hello", "--delay", "-1s", code=2)
    perdure("agents", "ls", "--limit", "0", code=2)


def test_a_job_is_started_for_an_agent(perdure: Perdure) -> None:
    perdure("agents", "create", "ann")
    id = perdure("jobs", "start", "greet", "--agent", "ann", "--session", "s1", "-o", "id").out.strip()
    job = perdure("jobs", "get", id, "--json").only
    assert (job["agent_id"], job["session_id"], job["concurrency_key"]) == ("ann", "s1", "agent:ann")


def test_signals_to_an_agent_are_sent_and_shown(anywhere: Perdure) -> None:
    anywhere("agents", "create", "ann")
    sent = anywhere("agents", "signal", "ann", "paid", '{"amount": 3}', "--id", "t-1", "--json").only
    assert (sent["key"], sent["payload"], sent["consumed_by_job_id"], sent["via"]) == (
        "paid",
        {"amount": 3},
        None,
        "cli",
    )
    assert (
        anywhere("agents", "signal", "ann", "paid", '{"amount": 3}', "--id", "t-1", "-o", "id").out.strip()
        == sent["id"]
    )
    anywhere("agents", "signal", "ann", "stop", "--expires-in", "1h")
    page = anywhere("agents", "signals", "ann").out
    assert [word in page for word in ("paid", "stop", '{"amount": 3}', "pending")] == [True] * 4
    anywhere("agents", "signal", "ann", "paid", "4", "--id", "t-1", code=5)
    anywhere("agents", "signal", "bob", "paid", code=3)
    anywhere("agents", "signal", "ann", "paid", "much", code=2)
    anywhere("agents", "signal", "ann", "paid", "--expires-in", "-1s", code=2)
    anywhere("agents", "pause", "ann")
    anywhere("agents", "signal", "ann", "stop", code=5)
    items = json.loads(anywhere("agents", "signals", "ann", "--pending", "--json").out)["items"]
    assert [item["key"] for item in items] == ["stop", "paid"]


def test_an_agent_is_deleted_after_a_yes(perdure: Perdure) -> None:
    perdure("agents", "rm", "ann", "--yes", code=3)
    perdure("agents", "create", "ann")
    perdure("agents", "send", "ann", "hello")
    assert "Delete agent ann" in perdure("agents", "rm", "ann", code=2).err
    refused = perdure("agents", "rm", "ann", "--yes", code=5)
    assert "1 job" in refused.err
    assert "perdure agents rm ann --force" in refused.err
    perdure("agents", "rm", "ann", "--force", "--yes")
    perdure("agents", "get", "ann", code=3)
    assert json.loads(perdure("jobs", "ls", "--json").out)["items"][0]["status"] == "CANCELLED"
