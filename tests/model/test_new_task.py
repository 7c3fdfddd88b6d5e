"""A task as JSON."""

from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.model import errors
from perdure.model.tooling import NewTask, TaskSpec, task_of_json

LEAST = {"tool": "codex", "prompt": "write the tests"}


def test_everything_that_a_task_has() -> None:
    server = {"command": "npx", "args": ["docs"], "env": {"STAGE": "test"}}
    value = {
        "tool": "claude",
        "model": "opus",
        "prompt": "write the tests",
        "input_files": [
            {"name": "a.txt", "content": "é"},
            {"path": "b.bin", "base64": "AP8="},
            "c.txt",
        ],
        "output_spec": ["results.txt", "out/**"],
        "account": "claude-a",
        "repo": "/srv/repo",
        "ref": "main",
        "timeout": "30m",
        "kill_after": 5,
        "no_output_timeout": "90s",
        "session": "s-1",
        "mcp_servers": {"docs": server},
        "env": {"STAGE": "test", "API_TOKEN": "env:TASK_TOKEN"},
        "keep_workspace": True,
        "idempotency_key": "k",
        "priority": 7,
        "max_attempts": 2,
        "delay": "1m",
        "run_at": None,
        "deadline": "2026-12-24T18:00:00Z",
        "goal": "tests",
        "tenant_id": "acme",
    }
    task = TaskSpec(
        "claude",
        "write the tests",
        model="opus",
        input_files=("a.txt", "b.bin", "c.txt"),
        output_spec=("results.txt", "out/**"),
        account="claude-a",
        repo="/srv/repo",
        ref="main",
        timeout=1800.0,
        kill_after=5.0,
        no_output_timeout=90.0,
        session="s-1",
        mcp_servers={"docs": server},
        env={"STAGE": "test", "API_TOKEN": "env:TASK_TOKEN"},
        keep_workspace=True,
    )
    deadline = datetime(2026, 12, 24, 18, tzinfo=UTC)
    options = {
        "priority": 7, "max_attempts": 2, "delay": 60.0, "deadline": deadline, "idempotency_key": "k", "goal": "tests",
    }  # fmt: skip
    assert task_of_json(value) == NewTask(task, {"a.txt": "é".encode(), "b.bin": b"\0\xff"}, options, "acme")


def test_every_field_of_a_task_has_a_key() -> None:
    from perdure.model.tooling.new_task import KEYS

    assert set(TaskSpec.__dataclass_fields__) <= KEYS


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"promt": "x"}, errors.InvalidTask, r"no key 'promt'; did you mean 'prompt'"),
        ({"tool": None}, errors.InvalidTask, "the task has no tool"),
        ({"prompt": 5}, errors.InvalidTask, "prompt must be text, got a number"),
        ({"prompt": " "}, errors.EmptyPrompt, "empty"),
        ({"model": "--yolo"}, errors.InvalidModel, "--yolo"),
        ({"timeout": "soon"}, errors.InvalidTask, "timeout: "),
        ({"timeout": True}, errors.InvalidTask, "timeout: "),
        ({"deadline": "2026-12-24"}, errors.InvalidTask, "deadline must be a time with an offset"),
        ({"priority": "high"}, errors.InvalidTask, "priority must be a whole number"),
        ({"keep_workspace": "yes"}, errors.InvalidTask, "keep_workspace must be true or false"),
        ({"output_spec": "results.txt"}, errors.InvalidTask, "output_spec must be a list"),
        ({"output_spec": ["../x"]}, errors.UnsafePath, r"\.\."),
        ({"input_files": {"a": "b"}}, errors.InvalidTask, "input_files must be a list"),
        ({"input_files": [{"path": "a", "text": "b"}]}, errors.InvalidTask, "an object with path"),
        ({"input_files": [{"path": "a"}]}, errors.InvalidTask, "needs its content"),
        ({"input_files": [{"path": "a", "base64": "?"}]}, errors.InvalidTask, "base64"),
        ({"input_files": [{"path": "a", "content": "\ud800"}]}, errors.InvalidTask, "surrogate"),
        ({"input_files": [{"path": "/etc/x", "content": ""}]}, errors.UnsafePath, "absolute"),
        ({"env": ["A=b"]}, errors.InvalidTask, "env must be an object"),
        ({"env": {"PATH": "/x"}}, errors.InvalidTask, "set by perdure alone"),
        ({"env": {"API_TOKEN": "abc"}}, errors.SecretByValue, "API_TOKEN"),
        ({"env": {"DATA": "file:/etc/shadow"}}, errors.InvalidTask, "a variable of the worker alone"),
        ({"env": {"DATA": "env:no name"}}, errors.InvalidTask, "a variable of the worker alone"),
        ({"mcp_servers": {"docs": {"command": "x", "env": {"API_KEY": "abc"}}}}, errors.SecretByValue, "API_KEY"),
        ({"mcp_servers": {"docs": {"args": []}}}, errors.InvalidTask, "needs a command"),
        ({"repo": "work/repo"}, errors.InvalidTask, "absolute path"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        task_of_json({**LEAST, **change})


@pytest.mark.parametrize("value", [[], "codex", None, 5])
def test_a_task_is_an_object(value: Any) -> None:
    with pytest.raises(errors.InvalidTask, match="a task is a JSON object"):
        task_of_json(value)
