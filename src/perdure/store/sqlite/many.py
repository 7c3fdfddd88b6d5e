"""Many rows in one call. The driver gives up the GIL for each row it writes or fetches, and beside a busy event loop each
return is a wait for it: so rows go in through statements of up to 64 of them, and come out as one JSON text."""

from __future__ import annotations

import functools
import json
import re
import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

from perdure.store.sqlite.base import SQL

_WIDEST = 64
_ONE_ROW = re.compile(r"values\s+(\([?, ]+\))")


@functools.cache
def _widened(name: str, rows: int) -> str:
    """A named statement whose `values (?, ...)` is repeated for so many rows."""
    one = _ONE_ROW.search(SQL[name])
    assert one is not None, name
    return SQL[name][: one.start(1)] + ", ".join([one.group(1)] * rows) + SQL[name][one.end(1) :]


def write_rows(conn: sqlite3.Connection, name: str, rows: Sequence[Sequence[Any]], *before: Any) -> int:
    """Run a named statement for all rows; return how many rows it changed. `before`: its parameters ahead of the rows."""
    changed = start = 0
    width = _WIDEST
    while start < len(rows):
        while start + width > len(rows):
            width //= 2
        some = rows[start : start + width]
        changed += conn.execute(_widened(name, width), (*before, *chain.from_iterable(some))).rowcount
        start += width
    return changed


def fetch_rows(conn: sqlite3.Connection, name: str, parameters: Sequence[Any]) -> list[list[Any]]:
    """The rows of a named statement that gives one JSON array of them."""
    rows: list[list[Any]] = json.loads(conn.execute(SQL[name], parameters).fetchone()[0])
    return rows
