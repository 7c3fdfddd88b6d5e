"""How the driver returns ids, times and lists: as Python's own types."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # PostgreSQL's
_MICROSECOND = timedelta(microseconds=1)
# A superuser's SQL may leave any time, `infinity` too: one that no datetime can hold in every time zone is shown as the first or
# last that can.
_FIRST = (datetime(2, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime(9998, 12, 31, tzinfo=UTC) - _EPOCH) // _MICROSECOND


def read_time(value: tuple[int]) -> datetime:
    """A time as the server sends it."""
    return _EPOCH + timedelta(0, 0, min(max(value[0], _FIRST), _LAST))


def write_time(value: datetime) -> tuple[int]:
    """A time as the server takes it. Naive ones are local, as the driver has it."""
    return ((value.astimezone(UTC) - _EPOCH) // _MICROSECOND,)


class PostgresCodec:
    """See `store.rows.Codec`."""

    def uuid(self, value: Any) -> UUID:
        """The driver's UUID is one."""
        id: UUID = value
        return id

    def time(self, value: Any) -> datetime:
        """The driver's times are aware, in UTC."""
        time: datetime = value
        return time

    def seconds(self, value: Any) -> float:
        """A column of type interval."""
        seconds: float = value.total_seconds()
        return seconds

    def texts(self, value: Any) -> tuple[str, ...]:
        """An array arrives as a list."""
        return tuple(value)


CODEC = PostgresCodec()
