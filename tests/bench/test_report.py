"""The table of the benchmark: verdicts on the bars, the JSON file and the page about performance."""

import json
from pathlib import Path

import pytest

from bench.bars import BARS, Bar, describe, verdict
from bench.report import BEGIN, END, Results, lines, summary_of_bars, table, write_json, write_page

DRAIN = Bar("drain", "jobs/s", "drain", ratio=0.35, least=25_000, where_yardstick=70_000)
FEWER_MS = Bar("pickup_1.p50", "ms", most=3)
TWO = Bar("drain_2/drain_1", "x", least=1.3, where=("drain_2.idle_cores", 1.0))


@pytest.mark.parametrize(
    ("bar", "product", "yardstick", "ratio", "figures", "expected"),
    [
        (DRAIN, 30_000, 80_000, 0.375, {}, "met"),
        (DRAIN, 24_000, 70_000, 0.343, {}, "missed"),
        (DRAIN, 24_900, 70_000, 0.356, {}, "missed"),
        (DRAIN, 20_000, 50_000, 0.40, {}, "met"),  # a slower machine: the ratio alone counts
        (FEWER_MS, 3.0, None, None, {}, "met"),
        (FEWER_MS, 3.1, None, None, {}, "missed"),
        (TWO, 1.4, None, None, {"drain_2.idle_cores": 1.2}, "met"),
        (TWO, 1.2, None, None, {"drain_2.idle_cores": 1.2}, "missed"),
        (TWO, 1.2, None, None, {"drain_2.idle_cores": 0.4}, "not judged"),
        (TWO, 1.2, None, None, {}, "not judged"),
        (Bar("memory.idle", "MiB"), 50, None, None, {}, ""),
    ],
)
def test_verdict(
    bar: Bar, product: float, yardstick: float | None, ratio: float | None, figures: dict[str, float], expected: str
) -> None:
    assert verdict(bar, product, yardstick, ratio, figures) == expected


def test_bars_are_described_in_the_table() -> None:
    assert describe(DRAIN) == "ratio >= 0.35, >= 25,000 where yardstick >= 70,000"
    assert describe(TWO) == ">= 1.3 where idle_cores >= 1"


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_a_figure_has_one_line(store: str) -> None:
    figures = [bar.figure for bar in BARS[store]]
    assert len(figures) == len(set(figures))


def some_results() -> Results:
    return Results(
        "postgres",
        "PostgreSQL 18",
        product={"drain": [30_000, 20_000, 40_000], "drain.cpu_us": [48, 50, 49], "other_us": [1, 2, 3]},
        yardstick={"drain": [80_000, 80_000, 40_000, 60_000, 100_000, 100_000]},
        left_out={"graphile_1": "no node"},
    )


def test_lines_hold_medians_and_the_median_of_the_rounds_ratios() -> None:
    cpu, drain, other = lines(some_results())
    assert (cpu.figure, cpu.product, cpu.result) == ("drain.cpu_us", 49, "")
    assert (drain.product, drain.before, drain.after, drain.ratio) == (30_000, 80_000, 80_000, 0.4)
    assert drain.result == "met"
    assert (other.figure, other.unit) == ("other_us", "us")
    assert summary_of_bars([some_results()]) == "bars: 1 of 1 met"


def test_the_table_is_written_to_json_and_to_the_page(tmp_path: Path) -> None:
    page, file = tmp_path / "performance.md", tmp_path / "figures.json"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_page(page, "a machine", "python -m bench", "load average 0.1", [some_results()])
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\na machine; load average 0.1. `python -m bench`:")
    assert text.endswith(f"{table(some_results())}\n```\n\nBars: 1 of 1 met.\n{END}\nafter\n")
    assert "left out: graphile_1: no node" in text
    write_json(file, "a machine", "python -m bench", [some_results()])
    (store,) = json.loads(file.read_text())["stores"]
    assert [line["figure"] for line in store["lines"]] == ["drain.cpu_us", "drain", "other_us"]
    assert store["left_out"] == {"graphile_1": "no node"}
