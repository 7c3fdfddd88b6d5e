"""The input of a job as it is stored."""

from __future__ import annotations

from typing import Any

from perdure.model.errors import InvalidInput
from perdure.runtime import codec
from perdure.runtime.registry import Handler
from perdure.runtime.unknown_keys import check_keys


def payload_of(kind: str, handler: Handler[Any, Any] | None, input: Any) -> str:
    """An input as JSON text, checked against its handler if that is known. Raises NotJson, TooLarge, InvalidInput."""
    if handler is not None and not handler.takes_input and input is not None:
        raise InvalidInput(f"handler '{kind}' takes no input, but one was given")
    what = f"the payload of job '{kind}'"
    payload = codec.encode(input, what)
    if handler is not None and handler.input_type is not None:
        handler.arguments(payload, what)
        check_keys(input, handler.input_type, what)
    return payload
