"""Values as text: escaped for a terminal, statuses, times, durations, ids."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.cli.usage_error import Usage
from perdure.model.approvals import Approval
from perdure.model.safe_text import clean_text as clean_text  # noqa: PLC0414  used by every command with the formats
from perdure.model.safe_text import one_line as one_line  # noqa: PLC0414  as above
from perdure.model.safe_text import safe_json as safe_json  # noqa: PLC0414  as above
from perdure.model.states import Status
from perdure.model.timing import seconds
from perdure.model.timing import span as span  # noqa: PLC0414  used by every command with the other formats

ICONS = {
    Status.PENDING: ("○", ""),
    Status.RUNNING: ("◐", "cyan"),
    Status.RETRY: ("↻", "yellow"),
    Status.WAITING: ("⏸", "blue"),
    Status.PARKED: ("⏸", "blue"),
    Status.WAITING_FOR_APPROVAL: ("✋", "magenta"),
    Status.COMPLETED: ("✓", "green"),
    Status.FAILED: ("✕", "red"),
    Status.DEADLETTER: ("☠", "red"),
    Status.CANCELLED: ("⊘", "dim"),
}
"""Icon and style of a status; always shown with the word."""


def short(id: Any) -> str:
    """`…43149ff1`: how an id is shown to people."""
    return "…" + str(id).replace("-", "")[-8:]


def approve_command(approval: Approval) -> str:
    """The command that approves an approval, without `perdure`; a question needs an answer."""
    command = f"approvals approve {approval.short_id}"
    return command if approval.kind == "approval" else f"{command} --outcome happened --result JSON"


def bare(id: Any) -> str:
    """`43149ff1`: how an id is typed in a next command."""
    return str(id).replace("-", "")[-8:]


class TimeFormat(enum.StrEnum):
    """How times are shown."""

    RELATIVE = "relative"
    ISO = "iso"
    EPOCH = "epoch"


@dataclass(frozen=True, slots=True)
class Times:
    """Shows times in the format asked for; `now` is this machine's clock."""

    format: TimeFormat
    now: datetime

    def show(self, moment: datetime | None) -> str:
        """`3m ago`, `in 5m`, an ISO 8601 time in UTC, or seconds since 1970; empty for None."""
        if moment is None:
            return ""
        match self.format:
            case TimeFormat.ISO:
                return iso(moment)
            case TimeFormat.EPOCH:
                return f"{moment.timestamp():.3f}"
            case TimeFormat.RELATIVE:
                away = (moment - self.now).total_seconds()
                if abs(away) < 1:
                    return "now"
                return f"in {span(int(away))}" if away > 0 else f"{span(int(-away))} ago"

    @property
    def age_column(self) -> str:
        """What a column of `age` is called."""
        return "age" if self.format is TimeFormat.RELATIVE else "created"

    def age(self, moment: datetime | None) -> str:
        """As `show`, without the `ago` where a column's name says it."""
        return self.show(moment).removesuffix(" ago")


def iso(moment: datetime) -> str:
    """`2026-11-20T16:44:21.359Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(text: str, option: str) -> float:
    """A duration typed by a person, in seconds. Raises Usage."""
    try:
        return seconds(text)
    except ValueError as error:
        raise Usage(f"{option}: {error}") from None


_CLOCK = re.compile(r"(?:(today|tomorrow|yesterday) +)?(\d{1,2}):(\d{2})(?::(\d{2}))?")


_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}


def moment(text: str, option: str, *, past: bool) -> datetime:
    """A moment typed by a person: ISO 8601, `HH:MM`, `today 18:00`, `tomorrow 09:00`, `yesterday` (its midnight), or a
    duration from now (backwards where the option looks into the past). Without an offset it is local time. Raises Usage."""
    typed = text.strip()
    if typed.lower() in _DAYS:
        typed += " 00:00"
    now = datetime.now(UTC)
    try:
        away = timedelta(seconds=seconds(typed.removeprefix("+")))
        return now - away if past else now + away
    except ValueError:
        pass
    if clock := _CLOCK.fullmatch(typed.lower()):
        day = now.astimezone() + timedelta(days=_DAYS.get(clock[1], 0))
        try:
            named = day.replace(hour=int(clock[2]), minute=int(clock[3]), second=int(clock[4] or 0), microsecond=0)
        except ValueError as error:
            raise Usage(f"{option}: '{text}' is not a time: {error}") from None
        return named.replace(tzinfo=None).astimezone(UTC)
    try:
        return datetime.fromisoformat(typed.replace(" ", "T", 1)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Usage(
            f"{option}: '{text}' is neither a time nor a duration",
            hint=f"write for example 2026-12-24T18:00Z, 18:00, {'yesterday' if past else 'tomorrow 09:00'}, or 90m",
        ) from None
