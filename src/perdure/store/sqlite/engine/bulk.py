"""Many rows in one call. The driver gives up the GIL several times for each statement and each row it fetches, and beside a busy
event loop each return is a wait for it. So ids go in, and rows come out, as one JSON text; other rows go in through statements
of up to 512 of them.
"""

from __future__ import annotations

import functools
import json
import re
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from perdure.store.sqlite.engine.base import SQL

_WIDEST = 512
_ONE_ROW = re.compile(r"values\s+(\([?, ]+\))")
COMPARED = frozenset({"append_head", "close_waits", "complete_many", "heartbeat"})
"""Statements whose rows are only compared with: a row of nulls changes nothing, so there may be more of them than rows."""


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
        left = len(rows) - start
        if width > left:
            width = _up(left) if name in COMPARED else 1 << (left.bit_length() - 1)
        some = rows[start : start + width]
        nulls = (None,) * ((width - len(some)) * len(some[0]))
        changed += conn.execute(_widened(name, width), (*before, *chain.from_iterable(some), *nulls)).rowcount
        start += width
    return changed


def _up(rows: int) -> int:
    """The next width there is a statement for: few of them, so that they stay prepared."""
    return -(-rows // 64) * 64 if rows > 64 else 1 << (rows - 1).bit_length()


def json_of(ids: Iterable[str]) -> str:
    """Ids as a JSON array."""
    return '["' + '","'.join(ids) + '"]'


def fetch_rows(conn: sqlite3.Connection, name: str, parameters: Sequence[Any]) -> list[list[Any]]:
    """The rows of a named statement that gives one JSON array of them."""
    rows: list[list[Any]] = json.loads(conn.execute(SQL[name], parameters).fetchone()[0])
    return rows
