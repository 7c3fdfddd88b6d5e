"""The input and output of an operation as types and JSON schemas, read from its signature."""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model

from perdure.operations.registry import UNSET, Operation, Unset
from perdure.runtime.client.client import Client


def input_model(operation: Operation) -> type[BaseModel]:
    """The arguments of an operation after the client, as a pydantic model.

    An argument that is a function (a callback) is left out: only callers in this process can give one.
    """
    hints = _hints(operation)
    fields: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(operation.function).parameters.items())[1:]:
        kinds = [kind for kind in _alternatives(hints[name]) if kind is not Unset]
        if any(typing.get_origin(kind) is Callable for kind in kinds):
            continue
        default = parameter.default
        if default is parameter.empty:
            default = ...  # pydantic's word for: required
        elif default is UNSET:
            default = None
        fields[name] = (functools.reduce(operator.or_, kinds), default)
    return create_model(operation.name, __config__=ConfigDict(extra="forbid"), **fields)


def input_schema(operation: Operation) -> dict[str, Any]:
    """The JSON schema of the arguments of an operation."""
    return input_model(operation).model_json_schema()


def output_type(operation: Operation) -> Any:
    """What an operation returns; of one that streams, what it yields."""
    returned = _hints(operation)["return"]
    if operation.streams:
        returned, *_ = typing.get_args(returned)
    return returned


def output_schema(operation: Operation) -> dict[str, Any]:
    """The JSON schema of what an operation returns or yields."""
    return TypeAdapter(output_type(operation)).json_schema(mode="serialization")


def _hints(operation: Operation) -> dict[str, Any]:
    # the modules of operations do not import the client themselves: the help of a command must not load it
    return typing.get_type_hints(operation.function, localns={"Client": Client}, include_extras=True)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
