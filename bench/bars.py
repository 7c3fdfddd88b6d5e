"""What perdure must reach: one table. A bar is a ratio to the yardstick, a ratio within the product, or a time in ms.

`factor` is how far this release may still be from a bar before it counts as missed; 1 = not at all.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the table: a figure of a workload, what it is compared with, and its limits."""

    figure: str
    """`workload` or `workload.part`."""
    unit: str
    yardstick: str | None = None
    """The yardstick's measure it is divided by."""
    ratio: float | None = None
    """At least this ratio to the yardstick."""
    least: float | None = None
    most: float | None = None
    where_yardstick: float | None = None
    """`least` holds only where the yardstick reaches this: it was set for such a machine."""
    factor: float = 1.0


POSTGRES = (
    Bar("enqueue_bulk", "jobs/s", "enqueue_bulk", ratio=0.35),
    Bar("enqueue_1", "jobs/s", "commit_1", ratio=0.60),
    Bar("enqueue_32", "jobs/s", "commit_16", ratio=2.0),
    Bar("drain", "jobs/s", "drain", ratio=0.35, least=25_000, where_yardstick=70_000, factor=2),
    Bar("drain_2", "jobs/s", "drain"),
    Bar("drain_4", "jobs/s", "drain"),
    Bar("steps_1", "steps/s", "steps_1", ratio=0.60),
    Bar("steps_32", "steps/s", "steps_32", ratio=0.40, factor=2),
    Bar("steps_128", "steps/s", "steps_128", ratio=0.33),
    Bar("pickup.p50", "ms", most=3),
    Bar("pickup.p99", "ms", most=10),
    Bar("claim_10.p50", "ms"),
    Bar("claim_10.p99", "ms", most=1.5),
    Bar("claim_10.full/empty", "x", most=1.5),
    Bar("heartbeat_10k.p50", "ms"),
    Bar("heartbeat_10k.p99", "ms"),
    Bar("memory.idle", "MiB"),
    Bar("memory.busy", "MiB"),
    Bar("sustained", "jobs/s"),
    Bar("sustained.last/first", "x", least=0.9),
)

SQLITE = (
    Bar("enqueue_bulk", "jobs/s", "enqueue_bulk"),
    Bar("enqueue_1", "jobs/s", "commit_1"),
    Bar("enqueue_32", "jobs/s", "commit_32"),
    Bar("drain", "jobs/s", "drain", ratio=0.5, least=20_000, factor=2),
    Bar("steps_1", "steps/s", "steps_1"),
    Bar("steps_32", "steps/s", "steps_32", ratio=0.5, least=20_000, factor=2),
    Bar("steps_128", "steps/s", "steps_128"),
    Bar("pickup.p50", "ms", most=3),
    Bar("pickup.p99", "ms", most=10),
    Bar("claim_10.p50", "ms"),
    Bar("claim_10.p99", "ms", most=1.5),
    Bar("claim_10.full/empty", "x", most=1.5),
    Bar("heartbeat_10k.p50", "ms"),
    Bar("heartbeat_10k.p99", "ms"),
    Bar("memory.idle", "MiB"),
    Bar("memory.busy", "MiB"),
    Bar("sustained", "jobs/s"),
    Bar("sustained.last/first", "x", least=0.9),
    Bar("drain_2", "jobs/s", "drain"),
    Bar("drain_4", "jobs/s", "drain"),
    Bar("drain_4.slowest/mean", "x", least=0.5),
    Bar("write_4.p50", "ms"),
    Bar("write_4.p99", "ms", most=20),
)

BARS = {"postgres": POSTGRES, "sqlite": SQLITE}


def yardstick_of(store: str, workload: str) -> str | None:
    """The yardstick's measure beside which a workload is run."""
    return next((b.yardstick for b in BARS[store] if b.figure == workload), None)


def verdict(bar: Bar, product: float, yardstick: float | None, ratio: float | None) -> str:
    """`yes`, `no`, `within 2x` where this release may still be that far off, or `` without a bar."""
    shortfalls = [1.0]
    if bar.ratio is not None and ratio:
        shortfalls.append(bar.ratio / ratio)
    if bar.least is not None and (bar.where_yardstick is None or (yardstick or 0) >= bar.where_yardstick):
        shortfalls.append(bar.least / product if product else float("inf"))
    if bar.most is not None:
        shortfalls.append(product / bar.most)
    if bar.ratio is None and bar.least is None and bar.most is None:
        return ""
    worst = max(shortfalls)
    if worst <= 1:
        return "yes"
    return f"within {bar.factor:g}x" if worst <= bar.factor else "no"


def told(bar: Bar) -> str:
    """The bar in words."""
    parts = []
    if bar.ratio is not None:
        parts.append(f">= {bar.ratio:.2f}")
    if bar.least is not None:
        parts.append(f">= {bar.least:,g}" + (f" at {bar.where_yardstick:,g}" if bar.where_yardstick else ""))
    if bar.most is not None:
        parts.append(f"<= {bar.most:g}")
    return ", ".join(parts)
