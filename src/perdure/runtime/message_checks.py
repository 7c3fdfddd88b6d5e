"""Checks of what agents and messages are made of, before anything is written."""

from __future__ import annotations

from typing import Any

from perdure.model.agents import Intake, NewAgent, OnBusy
from perdure.model.errors import InvalidInput
from perdure.model.ids import uuid7
from perdure.model.jobs import check_name
from perdure.model.messages import DEFAULT_CHANNEL, MAX_MESSAGE_BYTES, REPLY_PREFIX, NewMessage
from perdure.model.timing import Backoff, Duration
from perdure.runtime import codec
from perdure.runtime.validation import (
    check_backoff,
    check_delay,
    check_kind,
    check_maximum,
    check_queue,
    check_retries,
    check_seconds,
    check_text,
    check_word,
)
from perdure.store.agent_rows import backoff_text


def check_agent_id(value: object) -> str:
    """Raise InvalidInput unless it is a name of 1 to 100 printable characters without ':' or blanks."""
    try:
        return check_name(value, "agent")
    except ValueError as error:
        raise InvalidInput(str(error), hint="for example 'reviewer'") from None


def check_session(value: object) -> str | None:
    """None, or text of 1 to 200 characters. Raises InvalidInput."""
    return check_text(value, "session", 200)


def check_channel(value: object) -> str:
    """Raise InvalidInput unless it is 1 to 100 printable characters, and not a channel for replies."""
    if not isinstance(value, str) or not 1 <= len(value) <= 100 or not value.isprintable():
        raise InvalidInput(f"channel is text of 1 to 100 printable characters, got {value!r:.120}")
    if value.lower().startswith(REPLY_PREFIX):  # as LIKE in SQLite, which ignores case
        raise InvalidInput(f"channels that begin with '{REPLY_PREFIX}' are for replies", hint="choose another name")
    return value


def check_message(
    to: object,
    payload: Any,
    *,
    channel: object = DEFAULT_CHANNEL,
    session: object = None,
    delay: Duration = 0,
    expires_in: Duration | None = None,
    idempotency_key: object = None,
    causation_id: object = None,
) -> NewMessage:
    """The message with these parts. Raises NotJson, TooLarge, NegativeDelay, InvalidInput."""
    agent_id = check_agent_id(to)
    return NewMessage(
        uuid7(),
        agent_id,
        codec.encode(payload, f"the payload of a message to '{agent_id}'", most=MAX_MESSAGE_BYTES),
        channel=check_channel(channel),
        session_id=check_session(session),
        delay=check_delay(delay),
        expires_in=None if expires_in is None else check_seconds(expires_in, "expires_in"),
        causation_id=check_text(causation_id, "causation_id", 200),
        idempotency_key=check_text(idempotency_key, "idempotency_key", 500),
    )


def check_agent(agent_id: object, **fields: Any) -> NewAgent:
    """An agent with these fields, named as those of `NewAgent`, as values: meta is a dict, backoff a Backoff. Raises
    InvalidInput, NotJson, TooLarge."""
    id = check_agent_id(agent_id)
    changes = check_changes(fields)
    return NewAgent(id, changes.pop("kind", None) or id, **changes)


def check_changes(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of an agent as they are stored. Raises as `check_agent`."""
    unknown = ", ".join(sorted(fields.keys() - _CHECKS.keys()))
    if unknown:
        raise InvalidInput(f"an agent has no {unknown}", hint=f"it has {', '.join(sorted(_CHECKS))}")
    return {name: _CHECKS[name](value) for name, value in fields.items()}


def _check_meta(value: object) -> str:
    if not isinstance(value, dict):
        raise InvalidInput(f"meta is a dict, got {value!r:.120}", hint='for example {"persona": "strict"}')
    return codec.encode(value, "meta")


def _check_backoff(value: Backoff | None) -> str | None:
    return None if value is None else backoff_text(check_backoff(value))


def _check_batch(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise InvalidInput(f"batch is a whole number from 1 to 1000, got {value!r:.120}")
    return value


def _one_of(name: str, words: object) -> Any:
    def check(value: Any) -> Any:
        check_word(value, name, words)
        return value

    return check


_CHECKS: dict[str, Any] = {
    "kind": lambda value: None if value is None else check_kind(value),
    "name": lambda value: check_text(value, "name", 200),
    "default_session_id": check_session,
    "meta": _check_meta,
    "queue": check_queue,
    "intake": _one_of("intake", Intake),
    "batch": _check_batch,
    "on_busy": _one_of("on_busy", OnBusy),
    "max_parallel_jobs": lambda value: check_maximum(value, "max_parallel_jobs"),
    "max_retries": lambda value: None if value is None else check_retries(value),
    "backoff": _check_backoff,
}
