"""Python values to JSON text and back, typed by annotation. JSON only, never pickle."""

from __future__ import annotations

import functools
import hashlib
import json
import json.encoder
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from perdure.model.errors import InvalidInput, NotJson, TooLarge
from perdure.model.jobs import MAX_JSON_BYTES

PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types that come back from JSON as exactly what they were."""


def encode(value: Any, what: str, *, most: int = MAX_JSON_BYTES) -> str:
    """`value` as compact JSON text. `what` names it in errors ("the payload of job 'x'").

    Takes JSON values, dataclasses, TypedDicts, pydantic models, datetimes, UUIDs, enums, sets and paths.
    Raises NotJson for anything else, NaN, infinity and lone surrogates; TooLarge above `most` bytes, by default 1 MiB.
    """
    if value is None:
        return "null"
    try:
        text = _dumps(value)
    except _ReadOnceError as error:
        raise NotJson(
            f"{what} holds a {error}, which can be read only once", hint="make it a list: list(...)"
        ) from None
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as plain_error:
        if isinstance(plain_error, ValueError) and "Out of range float" in str(plain_error):
            raise NotJson(f"{what} holds NaN or infinity, which JSON does not have") from None
        try:
            text = _dumps(to_jsonable_python(value))
        except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
            raise NotJson(
                f"{what} cannot be written as JSON: {error}",
                hint="use JSON values, dataclasses or pydantic models; keep clients, files and secrets out of it",
            ) from None
    check_size(text, what, most=most)
    return text


def check_size(text: str, what: str, *, most: int = MAX_JSON_BYTES) -> None:
    """Raise TooLarge above `most` bytes of UTF-8, NotJson where the text is no valid Unicode."""
    if text.isascii():
        size = len(text)
    else:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise NotJson(f"{what} holds a lone surrogate, which is not valid Unicode") from None
    if size > most:
        raise TooLarge(
            f"{what} is {size:,} bytes of JSON; the limit is {most:,}",
            hint="store large data elsewhere and pass its address",
        )


class _ReadOnceError(Exception):
    """A value holds an iterator: an error half-way through would leave a shorter one, which looks whole."""


@functools.lru_cache(maxsize=1024)
def _reader(annotation: Any) -> Callable[[str], Any]:
    # of its adapter, whose own method takes twice as long to pass on what it was not given
    return TypeAdapter(annotation).validator.validate_json


def decode(text: str, annotation: Any, what: object) -> Any:
    """JSON text as a value of the annotated type; without an annotation (None or Any) as plain JSON values.

    Raises InvalidInput naming `what` (its text is asked for only then) and each field that does not fit.
    """
    return Decoder(annotation)(text, what)


class Decoder:
    """`decode` for one annotation: what reads it is looked up at the first use, when all names of its types are defined."""

    __slots__ = ("_annotation", "_read")

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation
        self._read: Callable[[str], Any] | None = None

    def __call__(self, text: str, what: object) -> Any:
        """See `decode`."""
        read = self._read
        if read is None:
            annotation = self._annotation
            read = json.loads if annotation is None or annotation is Any else _reader_of(annotation, what)
            self._read = read
        try:
            return read(text)
        except ValidationError as error:
            found = [(".".join(map(str, e["loc"])), e["msg"]) for e in error.errors()[:5]]
            problems = "; ".join(f"{place}: {said}" if place else said for place, said in found)
            raise InvalidInput(f"{what} does not fit {_name(self._annotation)}: {problems}") from None


def check_type(annotation: Any, what: str) -> None:
    """Raise InvalidInput, naming `what`, if the annotated type cannot be read from JSON at all."""
    if annotation is not None and annotation is not Any:
        _reader_of(annotation, what)


def check_type_early(annotation: Any, what: str) -> None:
    """As `check_type`, while types may still be without names that are defined further down: such a one passes."""
    try:
        _built_reader(annotation)
    except PydanticUndefinedAnnotation:
        return
    except PydanticUserError as error:
        if error.code != "class-not-fully-defined":
            raise _unreadable(annotation, what, error) from None


def _reader_of(annotation: Any, what: object) -> Callable[[str], Any]:
    try:
        return _built_reader(annotation)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise _unreadable(annotation, what, error) from None


def _built_reader(annotation: Any) -> Callable[[str], Any]:
    try:
        return _reader(annotation)
    except TypeError:  # an unhashable annotation
        return TypeAdapter(annotation).validator.validate_json


def _unreadable(annotation: Any, what: object, error: PydanticUserError | PydanticUndefinedAnnotation) -> InvalidInput:
    return InvalidInput(
        f"{what} is annotated as {_name(annotation)}, which cannot be read from JSON: {error.message.partition('. ')[0]}",
        hint="annotate JSON types, dataclasses, pydantic models or, below Python 3.12, typing_extensions.TypedDict",
    )


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation)


def round_trip(value: Any, text: str, annotation: Any, what: str) -> Any:
    """What a replay would return for `value`: so that the first run sees the same thing as any later one."""
    if type(value) in PLAIN and annotation in (None, Any, type(value)):
        return value
    return decode(text, annotation, what)


def digest(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """16 hex digits that change when the arguments do. What is no JSON (a client, a session) counts by its type only."""
    if not args and not kwargs:
        return "-"
    try:
        text = _sorted_dumps([args, kwargs])
    except TypeError:  # keys that are no text, or of several types
        text = _sorted_dumps(_with_text_keys([args, kwargs]))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {k if isinstance(k, str) else repr(_shadow(k)): _with_text_keys(v) for k, v in value.items()}
    return [_with_text_keys(v) for v in value] if isinstance(value, list | tuple) else value


def _shadow(value: Any) -> Any:
    if isinstance(value, Iterator):  # looking at it would use it up
        return f"<{type(value).__qualname__}>"
    try:
        return _opened(value)
    except (PydanticSerializationError, ValueError, TypeError):
        return f"<{type(value).__qualname__}>"


def _opened(value: Any) -> Any:
    """One level of a value that JSON does not know; what it holds is opened in its turn. Sets come out in one order,
    whatever the process's hash seed: a replay compares what it is given with what was recorded."""
    if isinstance(value, Iterator):
        raise _ReadOnceError(type(value).__qualname__)
    if isinstance(value, set | frozenset):
        return sorted(value, key=_sorted_dumps)
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    return to_jsonable_python(value)


def _kept(encoder: json.JSONEncoder) -> Callable[[Any], str]:
    """What `encoder.encode` does, without building the C encoder at each call, which takes longer than a small value does."""
    build = getattr(json.encoder, "c_make_encoder", None)
    if build is None:  # an interpreter without it
        return encoder.encode
    chunks = build(
        None,  # a circle ends in a RecursionError
        encoder.default,
        json.encoder.encode_basestring,
        None,
        encoder.key_separator,
        encoder.item_separator,
        encoder.sort_keys,
        encoder.skipkeys,
        encoder.allow_nan,
    )
    return lambda value: "".join(chunks(value, 0))


# kept, because json.dumps with options builds an encoder for each call
_dumps = _kept(json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_opened, separators=(",", ":")))
_sorted_dumps = json.JSONEncoder(ensure_ascii=False, sort_keys=True, default=_shadow, separators=(",", ":")).encode

quoted: Callable[[str], str] = json.encoder.encode_basestring_ascii
"""A text as JSON: what json.dumps says after it has looked what it was given."""
