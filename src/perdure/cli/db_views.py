"""What `perdure db` shows: the sizes of tables, and the progress of a prune."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

from rich.text import Text

from perdure.cli.output import Column, Mode, Output, as_dict, laid_out
from perdure.model.retention import StoreSizes, TableSize

EVERY = 1.0
"""Seconds between two lines of progress."""


def in_bytes(number: int | None) -> str:
    """`812 B`, `4.0 KiB`, `1.3 GiB`; empty for None."""
    if number is None:
        return ""
    size = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def sizes_json(sizes: StoreSizes) -> dict[str, Any]:
    """For programs: every figure, in bytes."""
    tables = [{**as_dict(table), "index_bytes": table.index_bytes} for table in sizes.tables]
    return {**as_dict(sizes), "tables": tables}


def sizes_page(out: Output, sizes: StoreSizes) -> Text:
    """For people: the whole, then a table; with -o wide its indexes beneath each table."""
    text = Text(f"size      {in_bytes(sizes.total_bytes)}")
    if sizes.free_bytes:
        text.append(f", {in_bytes(sizes.free_bytes)} of it free to be used again")
    if sizes.wal_bytes:
        text.append(f", and {in_bytes(sizes.wal_bytes)} of write-ahead log")
    known = any(t.bytes is not None for t in sizes.tables)
    columns: list[Column[TableSize]] = [
        Column("table", lambda t: t.name),
        Column("rows", _rows, right=True),
        Column("dead", lambda t: "" if t.dead_rows is None else str(t.dead_rows), right=True),
        Column("size", lambda t: in_bytes(t.bytes), right=True),
        Column("indexes", lambda t: in_bytes(t.index_bytes), right=True),
    ]
    if not known:
        columns = columns[:2]
    elif all(t.dead_rows is None for t in sizes.tables):
        del columns[2]
    rows = [[c.cell(table) for c in columns] for table in sizes.tables]
    if out.mode is Mode.WIDE and known:
        rows = []
        for table in sizes.tables:
            rows.append([c.cell(table) for c in columns])
            blank = [""] * (len(columns) - 2)
            rows += [[f"└ {index.name}", *blank, in_bytes(index.bytes)] for index in table.indexes]
    return text.append("\n\n").append_text(laid_out(rows, columns, out.width)).append("\n")


def _rows(table: TableSize) -> str:
    if table.rows is None:
        return ""
    return f"{table.rows}+" if table.at_least else str(table.rows) if table.exact else f"~{table.rows}"


def jobs(number: int) -> str:
    """`1 job`, `2 jobs`."""
    return "1 job" if number == 1 else f"{number} jobs"


class Progress:
    """Reports the progress of a prune, also when it is interrupted."""

    def __init__(self, out: Output, *, keep_logs: bool) -> None:
        self.matching = 0
        self.done = 0
        self._out = out
        self._keep_logs = keep_logs
        self._last = time.monotonic()

    def reached(self, number: int) -> None:
        """So many were pruned so far."""
        self.done = number
        if time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            self._out.note(f"{number} of {self.matching}")

    async def wait(self, pruning: Awaitable[int]) -> None:
        """Wait for the end; if it is interrupted, report how many jobs were pruned until then."""
        try:
            self.done = await pruning
        except (Exception, asyncio.CancelledError) as error:
            if self.done or isinstance(error, asyncio.CancelledError):
                self._out.note(
                    f"stopped: {self.done} of {jobs(self.matching)} {self._verb()}; run it again to continue"
                )
            raise

    def would(self) -> str:
        """The outcome of a dry run."""
        if self._keep_logs:
            return f"{jobs(self.matching)} would lose payload, result and checkpoint, and keep their logs"
        return f"{jobs(self.matching)} would be deleted"

    def summary(self, export: str | None) -> str:
        """The outcome."""
        where = f", all of them in {export}" if export else ""
        return f"{jobs(self.done)} {self._verb()}{where}"

    def _verb(self) -> str:
        return "pruned, their logs kept" if self._keep_logs else "deleted"
