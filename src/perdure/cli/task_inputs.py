"""What is typed about a task: a file that describes it, input files, environment, MCP servers."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure.cli.usage_error import Usage
from perdure.model.tooling import NewTask, task_of_json


def described(file: str | None, flags: Mapping[str, Any], files: Collection[str]) -> NewTask:
    """The task of `--from-file`, in which the flags that are not None replace keys; env and mcp_servers are added to those of the
    file. files: paths in the workspace of further input files. Raises Usage, or the subclass of InvalidTask that fits."""
    given = {} if file is None else _read(file)
    value = dict(given) if isinstance(given, dict) else given
    if isinstance(value, dict):
        for name, flag in flags.items():
            if flag is None:
                continue
            both = name in ("env", "mcp_servers") and isinstance(value.get(name), dict)
            value[name] = {**value[name], **flag} if both else flag
    new = task_of_json(value)
    paths = tuple(dict.fromkeys([*new.task.input_files, *files]))
    return replace(new, task=replace(new.task, input_files=paths))


def _read(file: str) -> Any:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"--from-file: cannot read '{file}': {getattr(error, 'strerror', None) or error}") from None
    return _json(text, f"--from-file {file}")


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Usage(f"{what}: that is not JSON: {error}") from None


def files(given: Sequence[str]) -> dict[str, Path]:
    """`PATH=FILE` or `FILE`: files by their path in the workspace. Raises Usage where one cannot be read."""
    found: dict[str, Path] = {}
    for text in given:
        path, equals, name = text.partition("=")
        source = Path(name if equals else path)
        target = path if equals else source.name if source.is_absolute() else str(source)
        if target in found:
            raise Usage(f"--file: two files are to be put at '{target}'", hint="name another place: --file PATH=FILE")
        if source.is_dir() or not os.access(source, os.R_OK):
            why = "it is a directory" if source.is_dir() else "no permission" if source.exists() else "no such file"
            raise Usage(f"--file: cannot read '{source}': {why}")
        found[target] = source
    return found


def environment(given: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE`, or `NAME` with its value here. Raises Usage."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            if name not in os.environ:
                raise Usage(
                    f"--env {name}: there is no variable {name} here", hint=f"give its value: --env {name}=VALUE"
                )
            value = os.environ[name]
        found[name] = value
    return found


def mcp_servers(given: Sequence[str]) -> dict[str, Any]:
    """`NAME=COMMAND ARGS`, split as a shell does, or `@FILE` with an object of servers by name, also below the key mcpServers.

    Raises Usage.
    """
    found: dict[str, Any] = {}
    for text in given:
        if text.startswith("@"):
            found |= _servers_of(text[1:])
            continue
        name, equals, command = text.partition("=")
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise Usage(f"--mcp {name}: {error}") from None
        if not equals or not words:
            raise Usage(
                f"--mcp {text}: that is neither NAME=COMMAND nor @FILE",
                hint="for example: --mcp 'docs=npx -y @acme/docs-server', or --mcp @mcp.json",
            )
        found[name] = {"command": words[0], "args": words[1:]}
    return found


def _servers_of(file: str) -> dict[str, Any]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"--mcp: cannot read '{file}': {getattr(error, 'strerror', None) or error}") from None
    value = _json(text, f"--mcp @{file}")
    if isinstance(value, dict) and isinstance(value.get("mcpServers"), dict):
        value = value["mcpServers"]
    if not isinstance(value, dict):
        raise Usage(f"--mcp @{file}: that is no object of servers by name")
    return value
