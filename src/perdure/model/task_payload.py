"""A task as the payload of its job, and back. Contents of files are not in it, only their hashes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.model.task_records import NewFile
from perdure.model.tooling import TaskSpec

KIND_PREFIX = "cli."
"""The kind of a task is this and the name of its tool."""


def payload_of_task(task: TaskSpec, inputs: Iterable[NewFile]) -> dict[str, Any]:
    """The payload: the tool, the prompt, and what differs from the defaults."""
    blank = TaskSpec(task.tool, task.prompt)
    payload: dict[str, Any] = {"tool": task.tool, "prompt": task.prompt}
    for name in TaskSpec.__dataclass_fields__:
        value = getattr(task, name)
        if value != getattr(blank, name):
            payload[name] = [*value] if isinstance(value, tuple) else value
    files = [{"path": file.path, "sha256": file.hash, "size": file.size} for file in inputs]
    return {**payload, "input_files": files} if files else payload


def task_of_payload(payload: Mapping[str, Any], kind: str) -> TaskSpec:
    """The task. Raises InvalidTask; a payload that SQL wrote may leave out the tool, which the kind says."""
    known = {name: payload[name] for name in TaskSpec.__dataclass_fields__ if name in payload}
    known["input_files"] = [file["path"] for file in payload.get("input_files", ())]
    return TaskSpec(**{"tool": kind.removeprefix(KIND_PREFIX), "prompt": "", **known})
