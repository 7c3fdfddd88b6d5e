"""Parse what is typed: parameters, JSON, files, ids from stdin."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.cli.usage_error import Usage
from perdure.model.budgets import Budget
from perdure.model.stuck import Stuck


def read_text(value: str, option: str) -> str:
    """The value itself, `@file` or `-` for stdin. Raises Usage."""
    if value == "-":
        return sys.stdin.read()
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"{option}: cannot read '{value[1:]}': {getattr(error, 'strerror', None) or error}") from None


def read_json(value: str, option: str) -> Any:
    """JSON as typed, from `@file` or from stdin (`-`). Raises Usage with the place of the error."""
    text = read_text(value, option)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        hint = f"a text needs its quotes: {option} {shlex.quote(json.dumps(text))}" if _bare_word(text) else None
        raise Usage(f"{option}: that is not JSON: {error}", hint=hint) from None


def parameters(pairs: Sequence[str]) -> dict[str, Any]:
    """`key=value` gives text, `key:=json` any JSON. Raises Usage."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, mark, value = pair.partition("=")
        as_json = key.endswith(":")
        name = key.removesuffix(":")
        if not mark or not name:
            raise Usage(
                f"-P {pair}: that is neither key=value nor key:=json", hint="for example: -P topic=coffee -P limit:=3"
            )
        if name in values:
            raise Usage(f"-P {name} is given twice")
        values[name] = _parameter_json(name, value, "-P") if as_json else read_text(value, f"-P {name}")
    return values


def _parameter_json(name: str, value: str, option: str) -> Any:
    try:
        return json.loads(read_text(value, f"{option} {name}"), parse_constant=_no_constant)
    except ValueError as error:
        raise Usage(
            f"{option} {name}:={value}: that is not JSON: {error}",
            hint=f"as text it is written with = alone: {option} {shlex.quote(f'{name}={value}')}",
        ) from None


def job_input(given: str | None, pairs: Sequence[str]) -> Any:
    """The input of a job: --input, with -P set on top of it. Raises Usage."""
    value = None if given is None else read_json(given, "--input")
    if not pairs:
        return value
    if value is not None and not isinstance(value, dict):
        raise Usage("-P sets keys of an object, and --input is none", hint="give one of the two")
    return {**(value or {}), **parameters(pairs)}


def input_changes(changes: Sequence[str]) -> dict[str, Any]:
    """Parts of an input by their path: `input.tone=text`, `input.items.0:=json`, `input:=json` for the whole. Raises Usage."""
    found: dict[str, Any] = {}
    for change in changes:
        path, mark, text = change.partition("=")
        name = path.removesuffix(":")
        first, *names = name.split(".")
        if not mark or first != "input" or not all(names):
            raise Usage(
                f"--set {change}: that is neither input.path=value nor input.path:=json",
                hint="for example: --set input.tone=short --set input.limit:=3 --set 'input.topics.0:=\"tea\"'",
            )
        value = _parameter_json(name, text, "--set") if path.endswith(":") else read_text(text, f"--set {name}")
        found[".".join(names)] = value
    return found


def ids_given(ids: Sequence[str], what: str = "a job") -> list[str]:
    """The ids as typed, `-` replaced by those on stdin, none twice. Raises Usage where there are none."""
    found: list[str] = []
    for id in ids:
        found += sys.stdin.read().split() if id == "-" else [id]
    if not found and "-" in ids:
        return []
    if not found:
        raise Usage(
            f"no id is given. Give {what} by its id or its last 6 or more hex digits", hint="- reads ids from stdin"
        )
    return list(dict.fromkeys(found))


def names(values: Sequence[str] | None) -> list[str]:
    """Names given several times or with commas: `--status failed,deadletter`."""
    return [name.strip() for value in values or () for name in value.split(",") if name.strip()]


def _bare_word(text: str) -> bool:
    return bool(text.strip()) and text.strip()[0] not in '{["0123456789-' and "\n" not in text.strip()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def budget(given: Mapping[str, Any]) -> Budget | None:
    """The budget of the options that were given; None if there is none. Raises InvalidBudget."""
    values = {name: value for name, value in given.items() if value is not None}
    if not values:
        return None
    if not values.keys() - {"on_breach"}:
        raise Usage("--on-breach goes with a budget", hint="--budget-tokens, --budget-cost, ...")
    return Budget(**values)


def stuck(given: Mapping[str, Any]) -> Stuck | None:
    """When the job is stuck, by the options that were given; None if there is none. Raises InvalidInput."""
    values = {name: value for name, value in given.items() if value is not None}
    return Stuck(**values) if values else None
