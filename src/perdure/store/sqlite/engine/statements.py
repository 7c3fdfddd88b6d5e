"""The named statements of this dialect, and lists of rows as parameters.

A statement takes its parameters by name, `:job_id`. Where it writes many rows it says `values :rows(job_id, version, :now)`: that
is one `(?, ?, ...)` for each row, of the named fields of that row and of parameters that all rows share. The text for so many
rows is put together once and kept.

One statement for many rows, because the driver gives up the GIL several times for each statement and each row it fetches, and
while the event loop is busy each return waits for it. For the same reason lists of ids go in, and many rows come out, as JSON.
"""

from __future__ import annotations

import functools
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from perdure.store.statements import compiled, load_statements

SQL = load_statements("perdure.store.sqlite")

_WIDEST = 512
_ROW = re.compile(r"\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class RowList:
    """A statement with `:rows(...)`, taken apart.

    before, after: its text around the rows. row: what stands in one row, each a field's name or a numbered parameter.
    parameters: the names of the parameters that all rows share, which are numbered from 1. fields: those of a row.
    """

    before: str
    after: str
    row: tuple[str, ...]
    parameters: tuple[str, ...]
    fields: tuple[str, ...]


@functools.cache
def row_list(name: str) -> RowList:
    """The named statement, taken apart."""
    shared: dict[str, int] = {}

    def marker(_: int, parameter: str) -> str:
        return "\0" if parameter == "rows" else f"?{shared.setdefault(parameter, len(shared) + 1)}"

    before, _, rest = compiled(name, SQL[name], marker).sql.partition("\0")
    row = _ROW.match(rest)
    if row is None:
        raise ValueError(f"statement '{name}' has no :rows(...)")
    places = tuple(row[1].replace("\n", " ").split(","))
    places = tuple(place.strip() for place in places)
    fields = tuple(dict.fromkeys(place for place in places if not place.startswith("?")))
    return RowList(before, rest[row.end() :], places, tuple(shared), fields)


@functools.cache
def _of_width(name: str, rows: int) -> str:
    """The named statement for so many rows."""
    parts = row_list(name)
    number = {field: n for n, field in enumerate(parts.fields, 1 + len(parts.parameters))}
    one = ", ".join(place if place.startswith("?") else f"?{{{place}}}" for place in parts.row)
    texts = (
        "(" + one.format_map({field: n + at * len(number) for field, n in number.items()}) + ")" for at in range(rows)
    )
    return parts.before + ", ".join(texts) + parts.after


def write_rows(conn: sqlite3.Connection, name: str, rows: Sequence[Sequence[Any]], **values: Any) -> int:
    """Run a named statement for all rows, whose values stand in the order of its fields; return how many rows it changed.

    values: the parameters that all rows share.
    """
    shared = [values[parameter] for parameter in row_list(name).parameters]
    changed = start = 0
    while start < len(rows):
        width = min(_WIDEST, 1 << ((len(rows) - start).bit_length() - 1))  # few widths, so that they stay prepared
        some = rows[start : start + width]
        changed += conn.execute(_of_width(name, width), (*shared, *chain.from_iterable(some))).rowcount
        start += width
    return changed


def update_rows(conn: sqlite3.Connection, name: str, rows: Sequence[Sequence[Any]], **values: Any) -> None:
    """Run a named statement that changes what its rows name, with rows of nulls behind them: they name nothing, and so it is
    a single statement for up to 512 rows.

    values: the parameters that all rows share.
    """
    shared = [values[parameter] for parameter in row_list(name).parameters]
    for start in range(0, len(rows), _WIDEST):
        some = rows[start : start + _WIDEST]
        width = 1 << (len(some) - 1).bit_length()
        nulls = repeat(None, (width - len(some)) * len(some[0]))
        conn.execute(_of_width(name, width), (*shared, *chain.from_iterable(some), *nulls))


def one_row(name: str, row: Sequence[Any], **values: Any) -> tuple[str, list[Any]]:
    """A named statement for a single row, and its values in their order: for a connection of a caller."""
    return _of_width(name, 1), [*(values[parameter] for parameter in row_list(name).parameters), *row]


def fetch_json(conn: sqlite3.Connection, name: str, values: Mapping[str, Any]) -> Any:
    """What a named statement gives as one JSON text."""
    return json.loads(conn.execute(SQL[name], values).fetchone()[0])
