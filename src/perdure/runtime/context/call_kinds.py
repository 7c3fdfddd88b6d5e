"""What the log says of the calls of steps and of tools."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from perdure.model.events import NewEvent
from perdure.runtime import codec, observer
from perdure.runtime.outcomes import describe


class Call(NamedTuple):
    """What is called, under which key, and the digest of the arguments."""

    key: str
    digest: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    granted: str = ""
    """Of a tool: what allows the call, as members of the payload of `tool_called`."""


class CallKind(ABC):
    """What the log says of the calls of one kind."""

    noun: observer.Call
    has_side_effect: bool
    """Whether its functions change something outside: a call that was begun and did not return has an unknown outcome."""

    @abstractmethod
    def failed(self, call: Call, error: Exception, count: int, *, last: bool) -> NewEvent | None:
        """The event of a call that raised. count: the calls so far. last: it is not made again."""

    @abstractmethod
    def returned(self, call: Call, result: str, count: int, ms: int) -> NewEvent:
        """The event that a later attempt finds. result: JSON. ms: milliseconds that it took, with its retries."""


class _Step(CallKind):
    noun = "step"
    has_side_effect = False

    def failed(self, call: Call, error: Exception, count: int, *, last: bool) -> NewEvent | None:
        if last:
            return None  # what the attempt makes of it is in the log
        return NewEvent("step_failed", json.dumps({"key": call.key, "call": count, "error": describe(error)}))

    def returned(self, call: Call, result: str, count: int, ms: int) -> NewEvent:
        return NewEvent(
            "node_finished",
            f'{{"key":{codec.quoted(call.key)},"digest":"{call.digest}","ms":{ms},"calls":{count},"result":{result}}}',
        )


class _Tool(CallKind):
    noun = "tool"
    has_side_effect = True

    def failed(self, call: Call, error: Exception, count: int, *, last: bool) -> NewEvent | None:
        del count, last
        return tool_event("tool_failed", call, f'"error":{json.dumps(describe(error))}')

    def returned(self, call: Call, result: str, count: int, ms: int) -> NewEvent:
        del count, ms
        return tool_event("tool_returned", call, f'"result":{result}')


def tool_event(type: str, call: Call, rest: str) -> NewEvent:
    """An event of a tool. rest: the members that are not in all of them, as JSON."""
    return NewEvent(type, f'{{"key":{codec.quoted(call.key)},"digest":"{call.digest}",{rest}}}')


STEP: CallKind = _Step()
TOOL: CallKind = _Tool()
