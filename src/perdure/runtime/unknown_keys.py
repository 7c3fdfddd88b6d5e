"""Keys of an input that its type does not have: they would be dropped without a word, and are mostly typing errors."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import AliasChoices, BaseModel

from perdure.model.errors import InvalidInput


class _UnknownKey(NamedTuple):
    path: str
    key: str
    known: list[str]


def check_keys(value: Any, annotation: Any, what: str) -> None:
    """Raise InvalidInput, naming `what`, if a dict in the value has a key that the dataclass, model or TypedDict it is read as
    does not have. Types that take any key, and unions of several types, are not looked into."""
    for unknown in _unknown(value, annotation, ""):
        near = difflib.get_close_matches(unknown.key, unknown.known, 1)
        place = f" at {unknown.path}" if unknown.path else ""
        raise InvalidInput(
            f"{what} has the key {unknown.key!r}{place}, which its type does not have"
            + (f"; did you mean {near[0]!r}?" if near else ""),
            hint=f"known: {', '.join(unknown.known) or 'none'}",
        )


def _unknown(value: Any, annotation: Any, path: str) -> Iterator[_UnknownKey]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _unknown(value, arguments[0], path)
    elif origin in (Union, types.UnionType):
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) == 1:
            yield from _unknown(value, others[0], path)
    elif isinstance(value, list) and origin in (list, set, frozenset) and arguments:
        for number, item in enumerate(value):
            yield from _unknown(item, arguments[0], f"{path}.{number}".lstrip("."))
    elif isinstance(value, Mapping) and origin is dict:
        for key, item in value.items():
            yield from _unknown(item, arguments[1], f"{path}.{key}".lstrip("."))
    elif isinstance(value, Mapping) and (known := _fields(annotation)) is not None:
        for key, item in value.items():
            if key not in known:
                yield _UnknownKey(path, str(key), list(known))
            else:
                yield from _unknown(item, known[key], f"{path}.{key}".lstrip("."))


def _fields(annotation: Any) -> dict[str, Any] | None:
    """The keys that a type takes, with their types; None where it takes any, or they are not known."""
    if not isinstance(annotation, type) or hasattr(annotation, "__get_pydantic_core_schema__") != issubclass(
        annotation, BaseModel
    ):
        return None
    try:
        if issubclass(annotation, BaseModel):
            return None if annotation.model_config.get("extra") == "allow" else _model_fields(annotation)
        if is_dataclass(annotation) and not hasattr(annotation, "__pydantic_config__"):
            hints = get_type_hints(annotation)
            return {f.name: hints.get(f.name) for f in fields(annotation) if f.init}
        if hasattr(annotation, "__total__") and issubclass(annotation, dict):
            return get_type_hints(annotation)
    except (NameError, TypeError):  # names that are not defined here
        return None
    return None


def _model_fields(model: type[BaseModel]) -> dict[str, Any] | None:
    if any(
        "before" in d.info.mode or "wrap" in d.info.mode
        for d in model.__pydantic_decorators__.model_validators.values()
    ):
        return None  # they may read other keys
    known: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        aliases = field.validation_alias or field.alias
        choices = aliases.choices if isinstance(aliases, AliasChoices) else [aliases or name]
        if not all(isinstance(choice, str) for choice in choices):
            return None
        known.update((str(choice), field.annotation) for choice in [*choices, name])
    return known
