"""How the driver returns ids, times and lists: as Python's own types."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID


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
