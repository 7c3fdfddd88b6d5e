"""A task as JSON, with its files and how it is queued: what `enqueue --from-file` reads."""

from __future__ import annotations

import base64
import binascii
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perdure.model.errors import InvalidTask
from perdure.model.timing import seconds
from perdure.model.tooling.task import TaskSpec


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to enqueue. files: contents by path in the workspace. options: further arguments of `Tasks.enqueue`.
    tenant: whose it is; None = that of the caller."""

    task: TaskSpec
    files: Mapping[str, bytes] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    tenant: str | None = None


def task_of_json(value: Any) -> NewTask:
    """The task that a JSON object describes. Keys: the fields of `TaskSpec`, times in seconds or as text (`30m`); input_files as
    a list of objects with `path` (or `name`) and `content` (text) or `base64`; priority, max_attempts, delay, run_at and
    deadline (times with an offset), idempotency_key, goal; tenant_id.

    Raises the subclass of InvalidTask that fits, naming the key.
    """
    if not isinstance(value, Mapping):
        raise InvalidTask(f"a task is a JSON object, got {_kind(value)}")
    for key in value:
        if key not in KEYS:
            near = difflib.get_close_matches(str(key), KEYS, 1)
            raise InvalidTask(
                f"a task has no key {key!r:.60}" + (f"; did you mean '{near[0]}'?" if near else ""),
                hint=f"keys: {', '.join(sorted(KEYS))}",
            )
    given = {key: _READ[key](key, item) for key, item in value.items() if item is not None}
    for key, flag in (("tool", "--tool"), ("prompt", "--prompt")):
        if key not in given:
            raise InvalidTask(f"the task has no {key}", hint=f"give it: {flag}, or the key '{key}'")
    names, files = given.pop("input_files", ((), {}))
    tenant = given.pop("tenant_id", None)
    options = {key: given.pop(key) for key in _OPTIONS if key in given}
    return NewTask(TaskSpec(**given, input_files=names), files, options, tenant)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidTask(f"{key} must be text, got {_kind(value)}")
    return value


def _seconds(key: str, value: Any) -> float:
    try:
        return seconds(value)
    except ValueError as error:
        raise InvalidTask(f"{key}: {error}") from None


def _moment(key: str, value: Any) -> datetime:
    try:
        found = datetime.fromisoformat(_text(key, value))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidTask(f"{key} must be a time with an offset, such as 2026-12-24T18:00:00Z, got {value!r:.60}")
    return found


def _whole(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidTask(f"{key} must be a whole number, got {value!r:.60}")
    return value


def _switch(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidTask(f"{key} must be true or false, got {value!r:.60}")
    return value


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise InvalidTask(f"{key} must be a list of texts, got {_kind(value)}")
    return tuple(value)


def _table(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidTask(f"{key} must be an object, got {_kind(value)}")
    return value


def _files(key: str, value: Any) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """The paths, and the contents of those that have one here."""
    if not isinstance(value, list | tuple):
        raise InvalidTask(f"{key} must be a list of files, got {_kind(value)}")
    names: list[str] = []
    contents: dict[str, bytes] = {}
    for item in value:
        if isinstance(item, str):
            names.append(item)
            continue
        path, content = _file(item)
        names.append(path)
        contents[path] = content
    return tuple(names), contents


def _file(item: Any) -> tuple[str, bytes]:
    if not isinstance(item, Mapping) or not set(item) <= {"path", "name", "content", "base64"}:
        raise InvalidTask(
            "a file of input_files is an object with path, and content or base64",
            hint='{"path": "src/app.py", "content": "print(1)\\n"}',
        )
    path = item.get("path", item.get("name"))
    if not isinstance(path, str):
        raise InvalidTask("a file of input_files has no path")
    if isinstance(item.get("content"), str) and "base64" not in item:
        try:
            return path, str(item["content"]).encode()
        except UnicodeEncodeError:
            raise InvalidTask(f"the content of the file {path!r:.120} has a lone surrogate; use base64") from None
    if isinstance(item.get("base64"), str) and "content" not in item:
        try:
            return path, base64.b64decode(item["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise InvalidTask(f"the base64 of the file {path!r:.120} is none") from None
    raise InvalidTask(f"the file {path!r:.120} needs its content as text: content, or base64")


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


_OPTIONS: Mapping[str, Callable[[str, Any], Any]] = {
    "priority": _whole,
    "max_attempts": _whole,
    "delay": _seconds,
    "run_at": _moment,
    "deadline": _moment,
    "idempotency_key": _text,
    "goal": _text,
}
_READ: Mapping[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("tool", "prompt", "model", "account", "repo", "ref", "session", "tenant_id"), _text),
    **dict.fromkeys(("timeout", "kill_after", "no_output_timeout"), _seconds),
    **dict.fromkeys(("env", "mcp_servers"), _table),
    "input_files": _files,
    "output_spec": _texts,
    "keep_workspace": _switch,
    **_OPTIONS,
}
KEYS = frozenset(_READ)
