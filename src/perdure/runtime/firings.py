"""The times of a schedule: cron in a time zone, an interval, or once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from perdure.model.errors import InvalidInput
from perdure.model.timing import LAST_MOMENT

MOMENT = timedelta(microseconds=1)
LEAST_INTERVAL = 1.0
"""Seconds between two firings."""


class Timed(Protocol):
    """What has times: a schedule, stored or new."""

    @property
    def cron(self) -> str | None:
        """Five or six fields."""
        ...

    @property
    def every(self) -> float | None:
        """Seconds."""
        ...

    @property
    def at(self) -> datetime | None:
        """Once."""
        ...

    @property
    def timezone(self) -> str:
        """An IANA name."""
        ...

    @property
    def anchor(self) -> datetime:
        """What intervals are counted from."""
        ...


def check_timezone(name: object) -> str:
    """Raise InvalidInput unless this is the name of a time zone."""
    try:
        if not isinstance(name, str):
            raise ZoneInfoNotFoundError
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(
            f"timezone: unknown time zone {name!r:.100}", hint="for example Europe/Berlin or UTC"
        ) from None
    return name


ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""What the short names of other crons stand for; cronsim does not read them."""


def _instead_of(text: str) -> str:
    """What to write for an expression that is not understood."""
    fields = ALIASES.get(text.strip().lower())
    if fields is not None:
        return f"write the fields: '{fields}'"
    return "minute hour day-of-month month day-of-week, for example '30 3 * * MON-FRI'"


def check_cron(text: object) -> str:
    """Raise InvalidInput unless this is a cron expression, saying which field is wrong."""
    if not isinstance(text, str):
        raise InvalidInput(f"cron must be text such as '0 3 * * *', got {text!r:.100}")
    try:
        next(CronSim(text, datetime(2024, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        raise InvalidInput(
            f"cron: {str(error).lower()} in '{text:.200}'",
            hint=_instead_of(text),
        ) from None
    except StopIteration:
        raise InvalidInput(f"cron: '{text:.200}' never comes") from None
    return " ".join(text.split())


def next_firing(schedule: Timed, after: datetime) -> datetime | None:
    """The first time of a schedule later than a moment, in UTC; None if there is none.

    Where the clock is put forward, a time of day that is left out comes at the moment of the change; where it is put back, one
    that comes twice counts once. Expressions with a star in minute or hour, and those with seconds, follow elapsed time instead.
    """
    if schedule.cron is not None:
        # UTC itself, not a zone without changes: there is nothing to be put right
        zone = UTC if schedule.timezone == "UTC" else ZoneInfo(schedule.timezone)
        try:
            found: datetime = next(CronSim(schedule.cron, after.astimezone(zone)))
        except StopIteration:
            return None
        found = found.astimezone(UTC)
        # put back by the change of the clock, an hour that comes twice may give a time that has been
        return found if found > after else next_firing(schedule, after + timedelta(hours=1))
    if schedule.every is not None:
        passed = (after - schedule.anchor).total_seconds()
        count = max(1, int(passed // schedule.every) + 1)
        try:
            found = schedule.anchor + timedelta(seconds=schedule.every * count)
        except OverflowError:
            return None
        return found if found < LAST_MOMENT else None
    assert schedule.at is not None
    return schedule.at if schedule.at > after else None


def firings(schedule: Timed, start: datetime, end: datetime) -> Iterator[datetime]:
    """The times of a schedule from `start` on, before `end`."""
    moment = next_firing(schedule, start - MOMENT)
    while moment is not None and moment < end:
        yield moment
        moment = next_firing(schedule, moment)
