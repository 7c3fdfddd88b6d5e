"""The results: medians over the rounds, ratios, the table, JSON."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.bars import BARS, Bar, describe, verdict

BEGIN, END = "<!-- measured -->", "<!-- /measured -->"
RESULTS = ("met", "missed", "not judged")
HEAD = ("figure", "unit", "product", "before", "after", "ratio", "bar", "result")


@dataclass
class Results:
    """All rounds of one store: figures of the product and of the yardstick, by name. The yardstick has two of each round:
    before and after."""

    store: str
    about: str
    product: dict[str, list[float]] = field(default_factory=dict)
    yardstick: dict[str, list[float]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """Where the database did not hold what it must: the figures of that run do not count."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Workloads that cannot be measured on this machine, and why."""


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
    result: str
    """See `bars.verdict`."""


def lines(results: Results) -> list[Line]:
    """The figures that were measured, in the order of the bars; those without a line there come last."""
    known = {b.figure: b for b in BARS[results.store]}
    others = [Bar(name, _unit(name)) for name in results.product if name not in known]
    medians = {name: statistics.median(values) for name, values in results.product.items()}
    found = []
    for bar in (*known.values(), *others):
        if bar.figure not in medians:
            continue
        before = after = ratio = None
        if bare := results.yardstick.get(bar.figure):
            before, after = statistics.median(bare[::2]), statistics.median(bare[1::2])
            # each list is shorter if a round went wrong
            rounds = zip(results.product[bar.figure], bare[::2], bare[1::2], strict=False)
            ratio = statistics.median(2 * p / (b + a) for p, b, a in rounds)
        product = medians[bar.figure]
        result = verdict(bar, product, before, ratio, medians)
        found.append(Line(results.store, bar.figure, bar.unit, product, before, after, ratio, describe(bar), result))
    return found


def _unit(figure: str) -> str:
    """The unit of a figure that has no line among the bars."""
    return "x" if "/" in figure else {"us": "us", "bytes": "bytes"}.get(figure.rpartition("_")[2], "ms")


def table(results: Results) -> str:
    """The lines as text, columns aligned, and what was left out."""
    rows: list[tuple[str, ...]] = [HEAD]
    for line in lines(results):
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        figures = map(_number, (line.product, line.before, line.after))
        rows.append((line.figure, line.unit, *figures, ratio, line.bar, line.result))
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    text = "\n".join(
        "  ".join(
            c.rjust(w) if 2 <= i <= 5 else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))
        ).rstrip()
        for r in rows
    )
    left_out = "".join(f"\nleft out: {name}: {why}" for name, why in results.left_out.items())
    return f"{results.about}\n\n{text}" + (f"\n{left_out}" if left_out else "")


def summary_of_bars(everything: Sequence[Results]) -> str:
    """How many bars are met, and which ones are missed or not judged."""
    judged = [line for results in everything for line in lines(results) if line.result]
    names = {result: [f"{line.store} {line.figure}" for line in judged if line.result == result] for result in RESULTS}
    met, missed = len(names["met"]), len(names["missed"])
    texts = [f"bars: {met} of {met + missed} met"]
    texts += [f"{result}: {', '.join(names[result])}" for result in RESULTS[1:] if names[result]]
    return "; ".join(texts)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def write_json(path: Path, machine: str, command: str, everything: Sequence[Results]) -> None:
    """Every round of every figure, for other programs."""
    stores = [{**asdict(results), "lines": [asdict(line) for line in lines(results)]} for results in everything]
    path.write_text(json.dumps({"machine": machine, "command": command, "stores": stores}, indent=1) + "\n")


def write_page(page: Path, machine: str, command: str, loads: str, everything: Sequence[Results]) -> None:
    """Put the tables of a full run into the page about performance, in place of those of the last one."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    tables = "\n\n".join(f"```text\n{table(results)}\n```" for results in everything)
    summary = summary_of_bars(everything).capitalize()
    page.write_text(f"{before}{BEGIN}\n{machine}; {loads}. `{command}`:\n\n{tables}\n\n{summary}.\n{END}{after}")
