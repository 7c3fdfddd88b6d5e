"""What fsck has read about a job, what is wrong with it, and what would repair that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from perdure.store.fsck.log_check import Log
from perdure.store.rows import Codec, Row


@dataclass(frozen=True, slots=True)
class Repair:
    """A named statement that both dialects have, and its parameters by name: ids as the dialect writes them, else texts,
    numbers, UUIDs and datetimes. first: statements with the same parameters that come before it; of what is of no job alone."""

    statement: str
    values: Mapping[str, Any]
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a job."""

    code: str
    text: str
    repair: Repair | None = None


PARTS = (
    "queue",
    "claims",
    "waits",
    "awaited",
    "approvals",
    "signals",
    "messages",
    "begun_for",
    "state",
    "failures",
    "runs",
    "files",
    "tool_runs",
    "tool_output",
)
"""What surrounds a job, each read by the statement `check_<part>`."""


_WITH_TENANT = ("claims", "approvals", "signals", "messages", "files", "tool_runs")


class Case:
    """Everything the database says about one id, read in one snapshot. Rows are as the dialect writes them.

    key: the id as the dialect writes it. job: its row, None where there is no job of this id.
    """

    def __init__(self, key: Any, now: datetime, codec: Codec, job: Row | None) -> None:
        self.key = key
        self.now = now
        self.codec = codec
        self.job = job
        self.log = Log(inherits=job is not None and job["origin_kind"] == "fork")
        self._rows: dict[str, list[Row]] = {}

    def add(self, part: str, row: Row, tenant: str) -> None:
        """A row of one of PARTS; where there is no job, those of other tenants are left out."""
        if self.job is not None or part not in _WITH_TENANT or row["tenant_id"] == tenant:
            self._rows.setdefault(part, []).append(row)

    def rows(self, part: str) -> Sequence[Row]:
        """The rows of one of PARTS."""
        return self._rows.get(part, ())

    def row(self, part: str) -> Row | None:
        """The row of one of PARTS of which there is one at most."""
        rows = self._rows.get(part)
        return rows[0] if rows else None

    @property
    def id(self) -> UUID | None:
        """The id, if it is one: SQLite would keep any text in the tables around `jobs`."""
        try:
            return self.codec.uuid(self.key)
        except ValueError:
            return None

    def time(self, row: Row, name: str) -> datetime | None:
        """A time of a row."""
        return None if row[name] is None else self.codec.time(row[name])
