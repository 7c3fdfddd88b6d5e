"""`perdure enqueue`: what is typed, and what is refused. Nothing is written where it is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Perdure

BASIC = ("enqueue", "--tool", "codex", "--prompt", "hello")


def enqueued(perdure: Perdure, *args: str, stdin: str = "") -> Any:
    """The task as it was stored, with its files."""
    id = perdure(*args, "-o", "id", stdin=stdin).out.strip()
    return perdure("tasks", "get", id, "--with-files", "-o", "json").only


def test_a_task_from_a_file(perdure: Perdure, place: Path) -> None:
    spec = {
        "tool": "codex",
        "prompt": "write the tests",
        "output_spec": ["*.patch"],
        "input_files": [{"name": "src/app.py", "content": "print(1)\n"}],
        "timeout": "5m",
        "env": {"STAGE": "test"},
        "priority": 2,
        "idempotency_key": "k",
    }
    (place / "task.json").write_text(json.dumps(spec))
    (place / "more.txt").write_text("more")
    task = enqueued(
        perdure, "enqueue", "--from-file", "task.json", "--priority", "9", "--model", "m-1", "--env", "REGION=eu",
        "--file", "more.txt",
    )  # fmt: skip
    payload = task["payload"]
    assert (payload["prompt"], payload["output_spec"], payload["timeout"]) == ("write the tests", ["*.patch"], 300.0)
    assert (payload["model"], task["priority"], task["idempotency_key"]) == ("m-1", 9, "k"), "flags replace keys"
    assert payload["env"] == {"STAGE": "test", "REGION": "eu"}
    assert {file["path"]: file["text"] for file in task["files"]} == {"src/app.py": "print(1)\n", "more.txt": "more"}
    again = enqueued(perdure, "enqueue", "--from-file", "-", "--prompt", "again", stdin='{"tool": "claude"}')
    assert (again["kind"], again["payload"]["prompt"]) == ("cli.claude", "again")


def test_a_task_of_the_tenant_in_its_file(perdure: Perdure, place: Path) -> None:
    (place / "task.json").write_text(json.dumps({"tool": "codex", "prompt": "x", "tenant_id": "acme"}))
    id = perdure("enqueue", "--from-file", "task.json", "-o", "id").out.strip()
    assert perdure("tasks", "ls", "-o", "id").lines == []
    assert perdure("tasks", "ls", "--tenant", "acme", "-o", "id").lines == [id]
    refused = perdure("enqueue", "--from-file", "task.json", "--tenant", "zeta", code=2)
    assert "--tenant is 'zeta', and the file's tenant_id is 'acme'" in refused.err


def test_environment_and_servers(perdure: Perdure, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGION", "eu")
    (place / "mcp.json").write_text(json.dumps({"mcpServers": {"files": {"command": "fs", "args": ["/w"]}}}))
    env = ("--env", "REGION", "--env", "STAGE=a=b", "--env", "API_TOKEN=env:TASK_TOKEN")
    payload = enqueued(perdure, *BASIC, *env, "--mcp", "docs=npx -y 'my docs'", "--mcp", "@mcp.json")["payload"]
    assert payload["env"] == {"REGION": "eu", "STAGE": "a=b", "API_TOKEN": "env:TASK_TOKEN"}
    assert payload["mcp_servers"] == {
        "docs": {"command": "npx", "args": ["-y", "my docs"]},
        "files": {"command": "fs", "args": ["/w"]},
    }


def test_files_have_names_in_the_workspace(perdure: Perdure, place: Path) -> None:
    (place / "a.txt").write_text("a")
    task = enqueued(perdure, *BASIC, "--file", "docs/b.txt=a.txt", "--file", str(place / "a.txt"))
    assert {file["path"]: file["text"] for file in task["files"]} == {"docs/b.txt": "a", "a.txt": "a"}


def test_a_wait_ends_at_its_limit(perdure: Perdure) -> None:
    assert "is still PENDING" in perdure(*BASIC, "--wait=0s", code=8).err


REFUSED = [
    (("enqueue", "--prompt", "x"), "the task has no tool"),
    (("enqueue", "--tool", "codex"), "the task has no prompt"),
    ((*BASIC, "--tool", "nosuch"), "there is no tool 'nosuch'"),
    ((*BASIC, "--model", "--yolo"), "a model's name"),
    ((*BASIC, "--prompt", "  "), "the prompt is empty"),
    ((*BASIC, "--prompt", "@huge.txt"), "1,048,577 bytes; codex reads 1,048,576"),
    ((*BASIC, "--prompt", "@nosuch.txt"), "cannot read 'nosuch.txt': No such file"),
    ((*BASIC, "--prompt", "@."), "cannot read '.': Is a directory"),
    ((*BASIC, "--file", "nosuch.txt"), "cannot read 'nosuch.txt': no such file"),
    ((*BASIC, "--file", "../x=huge.txt"), "which has `..`"),
    ((*BASIC, "--file", "/etc/x=huge.txt"), "which is absolute"),
    ((*BASIC, "--file", "a=huge.txt", "--file", "a=huge.txt"), "two files are to be put at 'a'"),
    ((*BASIC, "--output-spec", "/etc/passwd"), "which is absolute"),
    ((*BASIC, "--output-spec", "[a"), "whose bracket is not closed"),
    ((*BASIC, "--repo", "x", "--ref", "-x"), "ref is a branch"),
    ((*BASIC, "--account", "nosuch"), "nosuch"),
    ((*BASIC, "--account", "off"), "account 'off' is disabled"),
    ((*BASIC, "--account", "other"), "account 'other' is one of claude"),
    ((*BASIC, "--env", "NOSUCH"), "there is no variable NOSUCH here"),
    ((*BASIC, "--env", "API_KEY=abc"), "API_KEY holds a secret"),
    ((*BASIC, "--env", "ANTHROPIC_BASE_URL=http://x"), "can only be set by an account"),
    ((*BASIC, "--mcp", "docs"), "neither NAME=COMMAND nor @FILE"),
    ((*BASIC, "--mcp", "docs='"), "No closing quotation"),
    ((*BASIC, "--mcp", "@huge.txt"), "that is not JSON"),
    ((*BASIC, "--from-file", "huge.txt"), "that is not JSON"),
    ((*BASIC, "--from-file", "nosuch.json"), "cannot read 'nosuch.json'"),
    ((*BASIC, "--max-attempts", "102"), "max_attempts must be from 1 to 101, got 102"),
    ((*BASIC, "--priority", "10"), "priority"),
]


@pytest.mark.parametrize(("args", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_what_is_refused_says_why_and_writes_nothing(
    perdure: Perdure, place: Path, args: tuple[str, ...], says: str
) -> None:
    (place / "huge.txt").write_text("x" * 1_048_577)
    perdure("accounts", "add", "--id", "off", "--tool", "codex")
    perdure("accounts", "disable", "off")
    perdure("accounts", "add", "--id", "other", "--tool", "claude")
    refused = perdure(*args, code=None)
    assert refused.code in (2, 3, 5)
    assert says in refused.err
    assert "[perdure help " in refused.err, "it says where there is more on what to do"
    assert perdure("tasks", "ls", "-o", "id").lines == []
    assert perdure("fsck", code=None).code == 0


def test_a_key_that_has_a_task_names_it_though_its_account_is_disabled(perdure: Perdure) -> None:
    perdure("accounts", "add", "--id", "a", "--tool", "codex")
    line = (*BASIC, "--account", "a", "--key", "k", "-o", "id")
    first = perdure(*line).out
    perdure("accounts", "disable", "a")
    assert perdure(*line).out == first
