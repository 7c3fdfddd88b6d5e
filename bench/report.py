"""What was found: medians over the rounds, ratios, and the table."""

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.bars import BARS, Bar, told, verdict

BEGIN, END = "<!-- measured -->", "<!-- /measured -->"
HEAD = ("workload", "unit", "product", "before", "after", "ratio", "bar", "met?")


@dataclass
class Found:
    """All rounds of one store: figures of the product, and of the yardstick beside them, by name. The yardstick has two of each
    round: before and after."""

    store: str
    about: str
    product: dict[str, list[float]] = field(default_factory=dict)
    yardstick: dict[str, list[float]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """Where the database did not hold what it must: the figures of that run do not count."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    store: str
    figure: str
    unit: str
    product: float
    before: float | None
    after: float | None
    """The yardstick."""
    ratio: float | None
    """Of the product to the mean of both, round by round: a machine that is slow for a while is slow for all three."""
    bar: str
    met: str


def lines(found: Found) -> list[Line]:
    """The figures that were measured, in the order of the bars; those without a line there come last."""
    known = {b.figure: b for b in BARS[found.store]}
    others = [Bar(name, _unit(name)) for name in found.product if name not in known]
    result = []
    for bar in (*known.values(), *others):
        if bar.figure not in found.product:
            continue
        product = statistics.median(found.product[bar.figure])
        before = after = ratio = None
        if beside := found.yardstick.get(bar.figure):
            before, after = statistics.median(beside[::2]), statistics.median(beside[1::2])
            rounds = zip(
                found.product[bar.figure], beside[::2], beside[1::2], strict=False
            )  # shorter if one went wrong
            ratio = statistics.median(2 * p / (b + a) for p, b, a in rounds)
        met = verdict(bar, product, before, ratio)
        result.append(Line(found.store, bar.figure, bar.unit, product, before, after, ratio, told(bar), met))
    return result


def _unit(figure: str) -> str:
    """The unit of a figure that has no line among the bars."""
    return "x" if "/" in figure else {"us": "us", "bytes": "bytes"}.get(figure.rpartition("_")[2], "ms")


def table(found: Found) -> str:
    """The lines as text, columns aligned."""
    rows = [HEAD]
    for line in lines(found):
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        figures = map(_number, (line.product, line.before, line.after))
        rows.append((line.figure, line.unit, *figures, ratio, line.bar, line.met))
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    text = "\n".join(
        "  ".join(
            c.rjust(w) if 2 <= i <= 5 else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))
        ).rstrip()
        for r in rows
    )
    return f"{found.about}\n\n{text}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def write_json(path: Path, machine: str, command: str, everything: list[Found]) -> None:
    """Every round of every figure, for other programs."""
    stores = [{**asdict(found), "lines": [asdict(line) for line in lines(found)]} for found in everything]
    path.write_text(json.dumps({"machine": machine, "command": command, "stores": stores}, indent=1) + "\n")


def write_page(page: Path, machine: str, command: str, loads: str, everything: list[Found]) -> None:
    """Put the tables of a full run into the page about performance, in place of those of the last one."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    tables = "\n\n".join(f"```text\n{table(found)}\n```" for found in everything)
    told = f"{BEGIN}\n{machine}; {loads}. `{command}`:\n\n{tables}\n{END}"
    page.write_text(before + told + after)
