"""The conversation and the variables of a job, read from its log, and a conversation that fits a model's limit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.model.errors import InvalidInput
from perdure.model.events import Event
from perdure.model.steps import origin_of

MESSAGE, VARIABLE = "message_appended", "variable_set"
CONVERSATION_TYPES = (MESSAGE, VARIABLE)
"""The events that conversation and variables are read from."""

Message = dict[str, Any]
"""A message as model APIs write it: a JSON object with a `role`."""
Noted = tuple[str, dict[str, Any]]
"""The type and payload of an event of these types."""

_ALWAYS = ("system", "developer")
_FIRST_WIDE = "\u2e80"
"""From here on a character is about one token; of others four are."""


@dataclass(frozen=True, slots=True)
class ConversationMessage:
    """A message of a job's conversation.

    sequence: 0, 1, 2, ... within the job. message: as it was appended. step: the key of the step or tool that it was committed
    with; None for one of the handler itself. attempt: of the job. at: when it was appended, UTC.
    """

    sequence: int
    role: str
    message: Message
    at: datetime
    attempt: int | None
    step: str | None = None


@dataclass(frozen=True, slots=True)
class CutMessage:
    """A message that was left out. position: in the conversation, from 0. why: `budget`; `unanswered`, a call of a tool without
    its result; `orphan`, a result without its call."""

    position: int
    role: str
    tokens: int
    why: str


@dataclass(frozen=True, slots=True)
class Fitted:
    """The messages that fit, in order, with their tokens, and those that were cut."""

    messages: list[Message]
    tokens: int
    cut: tuple[CutMessage, ...] = ()

    @property
    def cut_tokens(self) -> int:
        """Tokens of what was cut."""
        return sum(cut.tokens for cut in self.cut)


def messages_of(events: Iterable[Event]) -> list[ConversationMessage]:
    """The conversation; `events` are in the order of the log."""
    found: list[ConversationMessage] = []
    given = [e for e in events if e.type == MESSAGE and isinstance(e.payload, dict) and "message" in e.payload]
    last = _last_calls(event.payload for event in given)
    for event in given:
        payload = event.payload
        if not _counts(payload, last):
            continue
        message = payload["message"]
        step = payload["with"]["key"] if "with" in payload else None
        at = origin_of(event, payload)[0]
        found.append(ConversationMessage(len(found), message.get("role", ""), message, at, event.attempt, step))
    return found


def messages_in(noted: Sequence[Noted]) -> list[Message]:
    """The messages among these events."""
    last = _last_calls(payload for _, payload in noted)
    return [payload["message"] for type, payload in noted if type == MESSAGE and _counts(payload, last)]


def variables_in(noted: Sequence[Noted]) -> dict[str, Any]:
    """The last value of each variable."""
    last = _last_calls(payload for _, payload in noted)
    values: dict[str, Any] = {}
    for type, payload in noted:
        if type == VARIABLE and _counts(payload, last):
            values[payload["name"]] = payload["value"]
    return values


def _last_calls(payloads: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """By step or tool: the call whose events count. It may have been called again, with other arguments."""
    return {(w["kind"], w["key"]): w["call"] for payload in payloads if (w := payload.get("with")) is not None}


def _counts(payload: Mapping[str, Any], last: Mapping[tuple[str, str], str]) -> bool:
    committed = payload.get("with")
    return committed is None or last[committed["kind"], committed["key"]] == committed["call"]


# -- what fits ---------------------------------------------------------------------------------------------------------


def estimated_tokens(message: Mapping[str, Any]) -> int:
    """About how many tokens a message has: one for each Chinese, Japanese or Korean character, one for four others."""
    text = json.dumps(message, ensure_ascii=False)
    wide = sum(character >= _FIRST_WIDE for character in text)
    return 4 + wide + math.ceil((len(text) - wide) / 4)


def fitted(messages: Sequence[Message], tokens: int, count: Callable[[Message], int] | None = None) -> Fitted:
    """The newest messages that have at most so many tokens together, after the system messages, which always stay.

    A call of a tool and its results stay or go together; calls without a result, unless they are the newest, and results
    without their call go. count: the tokens of a message; an estimate if left out. Raises InvalidInput if not even the system
    messages and the newest one fit.
    """
    if type(tokens) is not int or tokens < 1:
        raise InvalidInput(f"a budget of tokens is a whole number above 0, got {tokens!r}")
    sizes = [(count or estimated_tokens)(message) for message in messages]
    fixed = {i for i, message in enumerate(messages) if message.get("role") in _ALWAYS}
    units, why = _units(messages, fixed)
    kept, left = set(fixed), tokens - sum(sizes[i] for i in fixed)
    for number, unit in enumerate(reversed(units)):
        size = sum(sizes[i] for i in unit)
        if size > left and number == 0:
            raise InvalidInput(
                f"the system messages and the newest message have {tokens - left + size:,} tokens; the budget is {tokens:,}"
            )
        if size > left:
            break
        kept.update(unit)
        left -= size
    if left < 0:
        raise InvalidInput(f"the system messages have {tokens - left:,} tokens; the budget is {tokens:,}")
    cut = tuple(
        CutMessage(i, str(message.get("role")), sizes[i], why.get(i, "budget"))
        for i, message in enumerate(messages)
        if i not in kept
    )
    return Fitted([messages[i] for i in sorted(kept)], tokens - left, cut)


def _units(messages: Sequence[Message], fixed: set[int]) -> tuple[list[list[int]], dict[int, str]]:
    """What stays or goes together, oldest first, and why others go in any case: positions of messages."""
    units: list[list[int]] = []
    open_calls: dict[str, list[int]] = {}
    unanswered: list[tuple[list[int], set[str]]] = []
    why: dict[int, str] = {}
    for i, message in enumerate(messages):
        if i in fixed:
            continue
        answers, calls = set(_answers(message)), set(_calls(message))
        if answers:
            unit = next((open_calls[id] for id in sorted(answers) if id in open_calls), None)
            if unit is None:
                why[i] = "orphan"
                continue
            unit.append(i)
            for _, waiting in unanswered:
                waiting.difference_update(answers)
        else:
            unit = [i]
            units.append(unit)
        for id in calls:
            open_calls[id] = unit
        if calls:
            unanswered.append((unit, calls))
    for unit, ids in unanswered:
        if ids and unit is not units[-1]:
            units = [one for one in units if one is not unit]
            why |= dict.fromkeys(unit, "unanswered")
    return units, why


def _calls(message: Mapping[str, Any]) -> Iterator[str]:
    """The ids of the calls in a message, as OpenAI's and Anthropic's APIs write them."""
    for call in _objects(message.get("tool_calls")):
        yield str(call.get("id"))
    for part in _objects(message.get("content")):
        if part.get("type") == "tool_use":
            yield str(part.get("id"))


def _answers(message: Mapping[str, Any]) -> Iterator[str]:
    """The ids of the calls whose results a message has."""
    if message.get("tool_call_id") is not None:
        yield str(message["tool_call_id"])
    for part in _objects(message.get("content")):
        if part.get("type") == "tool_result":
            yield str(part.get("tool_use_id"))


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    return (one for one in value if isinstance(one, Mapping)) if isinstance(value, list | tuple) else iter(())
