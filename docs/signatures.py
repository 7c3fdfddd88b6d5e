"""The signatures of functions and classes, as they are shown in the Python reference."""

from __future__ import annotations

import enum
import inspect
import re
from typing import Any, get_overloads

MOST_OVERLOADS = 3

LONGEST_LINE = 100


def signatures_of(name: str, value: Any) -> list[str]:
    functions = [value]
    if inspect.isfunction(value):
        overloads = get_overloads(value)
        functions = list(overloads) if 0 < len(overloads) <= MOST_OVERLOADS else [value]
    if isinstance(value, staticmethod | classmethod):
        functions = [value.__func__]
    return [_signature(name, function) for function in functions]


def _signature(name: str, function: Any) -> str:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return f"{name}(...)"
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    shown: list[str] = []
    for number, parameter in enumerate(parameters):
        before = parameters[number - 1] if number else None
        if (
            before is not None
            and before.kind is before.POSITIONAL_ONLY
            and parameter.kind is not before.POSITIONAL_ONLY
        ):
            shown.append("/")
        if parameter.kind is parameter.KEYWORD_ONLY and not any(
            p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) for p in parameters[:number]
        ):
            shown.append("*")
        shown.append(_parameter(parameter))
    if parameters and parameters[-1].kind is parameters[-1].POSITIONAL_ONLY:
        shown.append("/")
    result = (
        "" if signature.return_annotation is signature.empty else f" -> {plain_annotation(signature.return_annotation)}"
    )
    if inspect.isclass(function):
        result = ""
    start = "async def " if inspect.iscoroutinefunction(function) else "" if inspect.isclass(function) else "def "
    line = f"{start}{name}({', '.join(shown)}){result}"
    if len(line) <= LONGEST_LINE:
        return line
    return f"{start}{name}(\n" + "".join(f"    {one},\n" for one in shown) + f"){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {plain_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {_default(parameter.default)}"
    return text


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if inspect.isclass(value):
        return value.__name__
    text = "..." if value is ... else repr(value)
    return "..." if " at 0x" in text or text.startswith("<") else text


def plain_annotation(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return re.sub(r"\b(?:builtins|perdure\.[\w.]+|collections\.abc|datetime|uuid)\.(?=[A-Za-z])", "", text)
