"""The arguments of a call as people may see them: bounded, and without what looks like a secret."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from perdure.model.errors import InvalidInput
from perdure.model.shown import HIDDEN, SECRET_TEXT, names_secret
from perdure.model.urls import masked
from perdure.runtime import codec

MOST_TEXT = 200
"""Characters of one text."""
MOST_ITEMS = 20
"""Of one list or object."""
DEEPEST = 4
"""Levels of lists and objects."""
MOST_BYTES = 4096
"""Of all arguments together, as JSON."""

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def shown_arguments(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """By the names of the function's parameters, or by their position where it has none.

    Hidden are values whose name looks like that of a secret, texts that look like one, and passwords in URLs. Cut are long texts,
    lists and objects; what is no JSON is shown as its type.
    """
    named = _named(fn, args, kwargs)
    shown = {name: HIDDEN if names_secret(name) else _shown(_plain(value), 1) for name, value in named.items()}
    if len(json.dumps(shown)) > MOST_BYTES:
        return {name: _brief(value) for name, value in list(shown.items())[:MOST_ITEMS]}
    return shown


def shown_text(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """`shown_arguments` as JSON text."""
    return _dumps(shown_arguments(fn, args, kwargs))


def whole_arguments(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """As `shown_arguments`, and nothing is cut: for a person who approves them."""
    named = _named(fn, args, kwargs)
    return {name: HIDDEN if names_secret(name) else _uncut(_plain(value)) for name, value in named.items()}


def _named(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    code = getattr(fn, "__code__", None)
    if isinstance(fn, FunctionType) and isinstance(code, CodeType) and len(args) <= code.co_argcount:
        return dict(zip(code.co_varnames, args, strict=False)) | kwargs  # a signature takes longer than the rest
    try:
        return dict(inspect.signature(fn).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {str(number): value for number, value in enumerate(args, 1)} | kwargs


def _uncut(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value, len(value))
    if isinstance(value, dict):
        return {key: HIDDEN if names_secret(key) else _uncut(item) for key, item in value.items()}
    return [_uncut(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int) or (type(value) is str and value.isascii()):
        return value
    try:
        return json.loads(codec.encode(value, "an argument"))
    except (InvalidInput, RecursionError):
        return f"<{type(value).__qualname__}>"


def _shown(value: Any, level: int) -> Any:
    if isinstance(value, str):
        return _text(value, MOST_TEXT)
    if isinstance(value, dict | list) and level > DEEPEST:
        return "…"
    if isinstance(value, dict):
        items = list(value.items())
        some = {k[:MOST_TEXT]: HIDDEN if names_secret(k) else _shown(v, level + 1) for k, v in items[:MOST_ITEMS]}
        return {**some, "…": f"{len(items) - MOST_ITEMS} more"} if len(items) > MOST_ITEMS else some
    if isinstance(value, list):
        more = [f"… {len(value) - MOST_ITEMS} more"] if len(value) > MOST_ITEMS else []
        return [_shown(item, level + 1) for item in value[:MOST_ITEMS]] + more
    return value


def _text(text: str, most: int) -> str:
    if SECRET_TEXT.search(text):
        return HIDDEN
    if "://" in text and " " not in text:
        text = masked(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def _brief(value: Any) -> Any:
    return _text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 100)
