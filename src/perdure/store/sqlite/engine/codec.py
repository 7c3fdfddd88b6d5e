"""How values are written in SQLite: ids as hyphenated text, times as microseconds since 1970 (UTC), lists as JSON arrays."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from perdure.model.cost import text_of_cost
from perdure.model.ids import uuid_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# SQL typed by hand may hold any number: one that no datetime can hold in every time zone is shown as the first or last that can.
_FIRST = (datetime(2, 1, 1, tzinfo=UTC) - EPOCH) // _MICROSECOND
_LAST = (datetime(9998, 12, 31, tzinfo=UTC) - EPOCH) // _MICROSECOND


class SqliteCodec:
    """See `rows.Codec`."""

    def uuid(self, value: Any) -> UUID:
        """An id column."""
        digits = value.replace("-", "")
        return uuid_of(int(digits, 16)) if len(digits) == 32 else UUID(value)

    def time(self, value: Any) -> datetime:
        """A time column, as UTC."""
        if not _FIRST <= value <= _LAST:
            value = _FIRST if value < _FIRST else _LAST
        return EPOCH + timedelta(0, 0, value)

    def seconds(self, value: Any) -> float:
        """A column of microseconds."""
        return float(value) / 1_000_000

    def texts(self, value: Any) -> tuple[str, ...]:
        """A JSON array of texts."""
        return tuple(json.loads(value))


CODEC = SqliteCodec()


def micros(time: datetime | None) -> int | None:
    """A time as it is stored."""
    return None if time is None else (time - EPOCH) // _MICROSECOND


def span(seconds: float) -> int:
    """A duration as it is stored."""
    return round(seconds * 1_000_000)


def stored(value: Any) -> Any:
    """A value of the model as it is stored."""
    match value:
        case datetime():
            return micros(value)
        case UUID():
            return str(value)
        case Decimal():
            return text_of_cost(value)
        case _:
            return value


def json_array(ids: Iterable[str]) -> str:
    """Ids as a JSON array."""
    return '["' + '","'.join(ids) + '"]'


def json_list(values: Iterable[str]) -> str | None:
    """A list that narrows a query, as a JSON array; None where it is empty, which means any."""
    some = list(values)
    return json.dumps(some) if some else None
