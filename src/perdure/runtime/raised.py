"""Exceptions as JSON and back: a recorded failure is raised again as what it was, without running code of its class."""

from __future__ import annotations

import json
import sys
from typing import Any

from perdure.model.errors import RecordedFailure
from perdure.runtime.outcomes import clean
from perdure.runtime.registry import retry_after

_MOST_TEXT = 65_536
"""Characters of JSON: above that the arguments and attributes are left out."""
_MOST_DEPTH = 8
_ENDS = (Exception, BaseException, object)


def as_raised(error: BaseException, depth: int = 0) -> dict[str, Any]:
    """The names of its class and the classes that it derives from, its text, and what of its arguments and attributes is plain
    JSON. Of a group its members as well."""
    classes = [cls for cls in type(error).__mro__ if issubclass(cls, BaseException) and cls not in _ENDS]
    raised: dict[str, Any] = {
        "types": [f"{cls.__module__}:{cls.__qualname__}" for cls in classes or [type(error)]],
        "text": clean(_text(error)),
    }
    asked = retry_after(error)
    if asked is not None:
        raised["retry_after"] = asked
    if isinstance(error, BaseExceptionGroup):
        if depth < _MOST_DEPTH:
            raised["members"] = [as_raised(member, depth + 1) for member in error.exceptions[:100]]
        raised["args"] = [clean(error.message)]
    elif _is_plain(args := _arguments(error)):
        raised["args"] = args
    raised["attributes"] = {
        name: value for name, value in vars(error).items() if not name.startswith("_perdure") and _is_plain(value)
    }
    if len(json.dumps(raised)) > _MOST_TEXT:
        return {name: raised[name] for name in ("types", "text", "retry_after") if name in raised}
    return raised


def rebuilt(raised: dict[str, Any]) -> Exception:
    """The exception again: of its class if that is imported in this process, else of the first imported one that it derives
    from, else RecordedFailure. Nothing is imported, and no code of a class that is not built in runs."""
    for name in raised["types"]:
        cls = _imported(name)
        if cls is None:
            continue
        for args in ([raised["args"]] if name == raised["types"][0] and "args" in raised else []) + [[raised["text"]]]:
            try:
                error = _made(cls, args, raised.get("members"))
            except Exception:  # noqa: BLE001, S112  a class that refuses these arguments: the next one does not
                continue
            attributes = dict(raised.get("attributes", {}))
            if "retry_after" in raised and retry_after(error) is None:
                attributes.setdefault("retry_after", raised["retry_after"])
            vars(error).update(attributes)
            return error
    return RecordedFailure(raised["types"][0].replace(":", "."), raised["text"])


def _arguments(error: BaseException) -> list[Any]:
    if isinstance(error, OSError) and len(error.args) == 2 and error.filename is not None:
        return [*error.args, error.filename]  # it is taken out of its arguments
    return list(error.args)


def _made(cls: type[Exception], args: list[Any], members: list[dict[str, Any]] | None) -> Exception:
    built_in = next(base for base in cls.__mro__ if base.__module__ == "builtins")
    if issubclass(cls, BaseExceptionGroup):
        args = [args[0], [rebuilt(member) for member in members or ()]]
    error: Exception = built_in.__new__(cls, *args)
    built_in.__dict__.get("__init__", Exception.__init__)(error, *args)
    return error


def _imported(name: str) -> type[Exception] | None:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  the user's own __str__
        return ""


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether JSON gives back exactly this, and every database can hold it."""
    match value:
        case None | bool():
            return True
        case str():
            return type(value) is str and clean(value) == value
        case int():
            return type(value) is int and abs(value) < 10**300
        case float():
            return type(value) is float and value - value == 0
        case list():
            return depth < _MOST_DEPTH and all(_is_plain(item, depth + 1) for item in value)
        case dict():
            return depth < _MOST_DEPTH and all(
                type(key) is str and _is_plain(key) and _is_plain(item, depth + 1) for key, item in value.items()
            )
        case _:
            return False
