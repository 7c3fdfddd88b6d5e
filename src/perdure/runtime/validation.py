"""Checks of arguments: each returns the value in its normal form, or raises before anything is written."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, get_args

from perdure.model.budgets import Budget
from perdure.model.cost import MOST_COST, MOST_DIGITS, cost_of
from perdure.model.errors import InvalidBudget, InvalidInput, InvalidPriority, NegativeDelay
from perdure.model.events import RESERVED_TYPES
from perdure.model.jobs import DEFAULT_QUEUE, check_name
from perdure.model.stuck import Stuck
from perdure.model.timing import FIRST_MOMENT, LAST_MOMENT, Backoff, seconds
from perdure.model.tool_approvals import ApprovalContext
from perdure.model.unique import OnConflict, Unique
from perdure.runtime import codec

MOST_TAGS = 50
"""Of one job."""
MOST_TOKENS = 10**15
"""Of one call: a job's sums overflow only after thousands of such calls."""


def check_priority(value: object) -> int:
    """Raise InvalidPriority unless it is a whole number from 1 to 9."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 9:
        raise InvalidPriority(f"priority must be a whole number from 1 to 9 (9 is the most urgent), got {value!r}")
    return value


def check_retries(value: object, name: str = "max_retries", *, most: int = 100) -> int:
    """Raise InvalidInput unless it is a whole number from 0 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise InvalidInput(f"{name} must be a whole number from 0 to {most}, got {value!r}")
    return value


def check_queue(value: object) -> str:
    """Raise InvalidInput unless it is a name of 1 to 100 printable characters without ':' or blanks."""
    try:
        return check_name(value, "queue")
    except ValueError as error:
        raise InvalidInput(str(error), hint=f"for example '{DEFAULT_QUEUE}'") from None


def check_kind(value: object) -> str:
    """Raise InvalidInput unless it is a name of 1 to 200 printable characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= 200 or not value.isprintable():
        raise InvalidInput(f"a handler's name is 1 to 200 printable characters, got {value!r}")
    return value


def check_text(value: object, name: str, limit: int) -> str | None:
    """None, or text of 1 to `limit` characters that every database can hold. Raises InvalidInput, NotJson."""
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= limit or "\x00" in value:
        raise InvalidInput(f"{name} must be text of 1 to {limit} characters without NUL")
    codec.check_size(value, name)
    return value


def check_delay(value: Any) -> float:
    """Seconds; raises NegativeDelay or InvalidInput."""
    try:
        return seconds(value)
    except (ValueError, TypeError) as error:
        if str(value).strip().startswith("-"):
            raise NegativeDelay(f"delay cannot be negative, got {value!r}", hint="leave it out to run now") from None
        raise InvalidInput(f"delay: {error}") from None


def check_seconds(value: Any, name: str) -> float:
    """Seconds; raises InvalidInput."""
    try:
        return seconds(value)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{name}: {error}") from None


def check_moment(value: object, name: str) -> datetime | None:
    """None, or a timezone-aware moment of the years 2 to 9998 as UTC. Raises InvalidInput."""
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidInput(
            f"{name} must be a timezone-aware datetime, got {value!r}", hint="datetime.now(UTC) + timedelta(...)"
        )
    try:
        moment = value.astimezone(UTC)
    except OverflowError:
        moment = None
    if moment is None or not FIRST_MOMENT <= moment <= LAST_MOMENT:
        raise InvalidInput(
            f"{name} must be a moment of the years 2 to 9998, got {value!r}", hint="leave it out for none"
        )
    return moment


def check_names(value: object, name: str) -> tuple[str, ...]:
    """A list or tuple of texts as a tuple. Raises InvalidInput for anything else, also for a single text."""
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) and v and "\x00" not in v for v in value):
        raise InvalidInput(f"{name} is a list of names, got {value!r}", hint='for example ["ann", "bob"]')
    return tuple(value)


def check_tags(value: object) -> tuple[str, ...]:
    """A list or tuple of at most 50 tags as a tuple, each once. Raise InvalidInput unless each is text of 1 to 100 printable
    characters without a comma."""
    tags = tuple(dict.fromkeys(check_names(value, "tags")))
    if wrong := [tag for tag in tags if len(tag) > 100 or not tag.isprintable() or "," in tag]:
        raise InvalidInput(
            f"a tag is 1 to 100 printable characters without a comma, got {wrong[0]!r:.120}",
            hint="for example 'nightly'",
        )
    if len(tags) > MOST_TAGS:
        raise InvalidInput(f"a job has at most {MOST_TAGS} tags, got {len(tags)}")
    return tags


def check_unique(value: object) -> Unique:
    """A key or a Unique, as a Unique whose period is in seconds. Raise InvalidInput unless the key is text of 1 to 200 printable
    characters, the period is above 0, and on_conflict is one of its words."""
    unique = value if isinstance(value, Unique) else Unique(check_key(value, "unique"))
    check_key(unique.key, "unique")
    check_word(unique.on_conflict, "on_conflict", OnConflict)
    if unique.period is None:
        return unique
    if unique.on_conflict == "replace":
        raise InvalidInput('on_conflict="replace" goes without a period', hint="the key is held until the job ends")
    period = check_seconds(unique.period, "period")
    if not period:
        raise InvalidInput("period must be above 0", hint="leave it out for a key that is held while the job is active")
    return replace(unique, period=period)


def check_backoff(value: object) -> Backoff:
    """The default for None. Raise InvalidInput for anything but a Backoff: else the error would come when an attempt fails."""
    if value is not None and not isinstance(value, Backoff):
        raise InvalidInput(f"backoff must be a Backoff, got {value!r:.120}", hint='for example Backoff(base="30s")')
    return value or Backoff()


def check_title(value: object) -> str:
    """Raise InvalidInput unless it is text that is not blank and that every database can hold. Raises NotJson, TooLarge."""
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        raise InvalidInput(
            f"title must be text that is not blank and has no NUL, got {value!r}", hint='for example "Publish this?"'
        )
    codec.check_size(value, "title")
    return value


def check_version(value: object) -> str:
    """Raise InvalidInput unless it is 1 to 100 printable characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= 100 or not value.isprintable():
        raise InvalidInput(f"version must be text of 1 to 100 printable characters, got {value!r:.120}")
    return value


def check_tokens(tokens: object) -> int:
    """Raise InvalidInput unless it is a whole number from 0 to MOST_TOKENS."""
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 <= tokens <= MOST_TOKENS:
        raise InvalidInput(f"usage: tokens is a whole number from 0 to 10^15, got {tokens!r}")
    return tokens


def check_cost(value: object) -> Decimal:
    """A cost as an exact number; a float counts as the decimal number that Python prints for it. Raise InvalidInput unless it is
    a number, or its text, from 0 to MOST_COST with at most MOST_DIGITS digits after the point."""
    if isinstance(value, Decimal | int | float | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):
            cost = cost_of(float(value) if isinstance(value, float) else value)
            exponent = cost.as_tuple().exponent
            if 0 <= cost <= MOST_COST and isinstance(exponent, int) and exponent >= -MOST_DIGITS:
                return abs(cost)  # of a negative zero
    raise InvalidInput(
        f"usage: cost is a number from 0 to 10^15 with at most {MOST_DIGITS} digits after the point, got {value!r:.60}",
        hint='for example Decimal("0.0184")',
    )


def check_budget(value: object) -> Budget | None:
    """Raise InvalidBudget for anything but a Budget or None."""
    if value is not None and not isinstance(value, Budget):
        raise InvalidBudget(
            f"a budget is a Budget, got {value!r:.60}", hint='for example Budget(tokens=10_000, cost="1.50")'
        )
    return value


def check_approval_context(value: object) -> ApprovalContext | None:
    """Raise InvalidInput for anything but an ApprovalContext or None."""
    if value is not None and not isinstance(value, ApprovalContext):
        raise InvalidInput(
            f"an approval context is an ApprovalContext, got {value!r:.60}",
            hint='for example ApprovalContext(tools={"deploy": "always"})',
        )
    return value


def check_stuck(value: object) -> Stuck | None:
    """Raise InvalidInput for anything but a Stuck or None."""
    if value is not None and not isinstance(value, Stuck):
        raise InvalidInput(f"stuck is a Stuck, got {value!r:.60}", hint='for example Stuck(after="10m")')
    return value


def check_key(value: object, name: str = "concurrency_key") -> str:
    """Raise InvalidInput unless it is text of 1 to 200 printable characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= 200 or not value.isprintable():
        raise InvalidInput(
            f"{name} must be text of 1 to 200 printable characters, got {value!r:.120}", hint="for example 'customer:7'"
        )
    return value


def check_maximum(value: object, name: str = "max_concurrent", *, least: int = 1) -> int:
    """Raise InvalidInput unless it is a whole number from `least` to a million."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 1_000_000:
        raise InvalidInput(f"{name} must be a whole number from {least} to 1000000, got {value!r:.120}")
    return value


def check_limit(value: object) -> int:
    """The size of a page. Raise InvalidInput unless it is a whole number from 1 to 1,000."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise InvalidInput(f"limit must be between 1 and 1000, got {value!r:.60}")
    return value


def check_word(value: object, name: str, words: object) -> None:
    """Raise InvalidInput unless it is one of the words of a Literal."""
    if value not in get_args(words):
        raise InvalidInput(f"{name} must be {' or '.join(repr(word) for word in get_args(words))}, got {value!r}")


def check_event_type(type: str) -> None:
    """Raise InvalidInput for an empty, overlong or reserved event type."""
    if not type or len(type) > 100 or not type.replace("_", "").replace(".", "").replace("-", "").isalnum():
        raise InvalidInput(f"an event type is 1 to 100 letters, digits, '_', '-' or '.', got {type!r}")
    if type in RESERVED_TYPES:
        raise InvalidInput(f"only perdure itself writes events of type '{type}'", hint="choose another name")
