"""How keyed calls behave: what `JobContext.options` sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

from perdure.model.budgets import NOTHING, Amounts
from perdure.model.errors import InvalidInput
from perdure.model.timing import Backoff, Duration
from perdure.runtime.context.lost_answers import ErrorClasses
from perdure.runtime.context.names import UNSTORABLE
from perdure.runtime.validation import (
    check_backoff,
    check_cost,
    check_names,
    check_retries,
    check_seconds,
    check_tokens,
    check_word,
)

OnChange = Literal["wait", "fail", "rerun", "keep"]
"""What happens if a call does not fit its record: the job waits for code that does, it fails, the call runs again, its record is
kept."""
OnUnknown = Literal["ask", "retry", "fail"]
"""What happens to a tool whose outcome is unknown: a person is asked, it is called again, or the job fails."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How one keyed call behaves; see `JobContext.options`. timeout: seconds."""

    retries: int = 0
    backoff: Backoff = field(default_factory=Backoff)
    timeout: float | None = None
    key: str | None = None
    on_change: OnChange | None = None
    """None: as the handler's policy says, "wait" or "fail"."""
    on_unknown: OnUnknown = "ask"
    unknown_on: ErrorClasses = ()
    known_on: ErrorClasses = ()
    assignees: tuple[str, ...] = ()
    estimate: Amounts = NOTHING
    """What a call may use of the budget."""
    tool_call_id: str | None = None
    """Under which the stash has the output of a tool."""

    def changed(
        self,
        *,
        retries: int | None,
        backoff: Backoff | None,
        timeout: Duration | None,
        key: str | None,
        on_change: OnChange | None,
        on_unknown: OnUnknown | None,
        unknown_on: ErrorClasses | None,
        known_on: ErrorClasses | None,
        assignees: Sequence[str] | None,
        tokens: int | None = None,
        cost: Decimal | float | str | None = None,
        tool_call_id: str | None = None,
    ) -> CallOptions:
        """These options with those that are given, None for the others. Raises InvalidInput."""
        if key is not None and (len(str(key)) > 400 or UNSTORABLE.search(str(key))):
            raise InvalidInput(f"a key is text of at most 400 whole characters without NUL, got {key!r:.120}")
        given: dict[str, Any] = {"key": key, "on_change": on_change, "on_unknown": on_unknown}
        given["retries"] = None if retries is None else check_retries(retries, "retries", most=1000)
        given["backoff"] = None if backoff is None else check_backoff(backoff)
        given["unknown_on"] = None if unknown_on is None else _check_classes(unknown_on, "unknown_on")
        given["known_on"] = None if known_on is None else _check_classes(known_on, "known_on")
        given["assignees"] = None if assignees is None else check_names(assignees, "assignees")
        given["timeout"] = None if timeout is None else check_seconds(timeout, "timeout")
        given["tool_call_id"] = None if tool_call_id is None else _check_call_id(tool_call_id)
        if tokens is not None or cost is not None:
            given["estimate"] = Amounts(
                self.estimate.tokens if tokens is None else check_tokens(tokens),
                self.estimate.cost if cost is None else check_cost(cost),
            )
        changed = replace(self, **{name: value for name, value in given.items() if value is not None})
        check_word(changed.on_change or "wait", "on_change", OnChange)
        check_word(changed.on_unknown, "on_unknown", OnUnknown)
        return changed


def _check_call_id(value: Any) -> str:
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= 200
        or not value.isprintable()
        or value.startswith(("__", "$"))
    ):
        raise InvalidInput(
            f"a tool_call_id is 1 to 200 printable characters that do not begin with __ or $, got {value!r:.120}"
        )
    return value


def _check_classes(value: Any, name: str) -> ErrorClasses:
    classes = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in classes):
        raise InvalidInput(f"{name} is a class of errors, or a tuple of them, got {value!r:.120}")
    return classes


DEFAULTS = CallOptions()
