"""What perdure must reach: one table. A bar is a ratio to the yardstick or to a peer, a ratio within the product, or a time.

The figures are printed in this order: processor time for each job or step comes before jobs a second, because it is steady on a
machine that has other things to do.
"""

from collections.abc import Mapping
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
    where: tuple[str, float] | None = None
    """The bar holds only where another figure of the same run is at least so high."""

    @property
    def is_set(self) -> bool:
        """Whether there is a limit at all."""
        return not (self.ratio is None and self.least is None and self.most is None)


def cpu(name: str) -> tuple[Bar, Bar, Bar]:
    """Microseconds of processor time for each job or step: in total, of the client, of the server's processes."""
    return Bar(f"{name}cpu_us", "us"), Bar(f"{name}client_us", "us"), Bar(f"{name}server_us", "us")


def pickup(rate: int) -> tuple[Bar, Bar, Bar]:
    """At so many enqueues a second; the last figure is how many it came to."""
    name = f"pickup_{rate}"
    return Bar(f"{name}.p50", "ms", most=3), Bar(f"{name}.p99", "ms", most=10), Bar(f"{name}.enqueues", "jobs/s")


def graphile(processes: int) -> tuple[Bar, ...]:
    """48 us for a job where Graphile Worker takes 49, as a ratio; the bars are for one worker process."""
    name = f"graphile_{processes}"
    one = processes == 1
    return (
        *cpu(f"{name}.perdure_"),
        *cpu(f"{name}.graphile_"),
        Bar(f"{name}.cpu perdure/graphile", "x", most=0.98 if one else None),
        Bar(f"{name}.perdure", "jobs/s"),
        Bar(f"{name}.graphile", "jobs/s"),
        Bar(f"{name}.rate perdure/graphile", "x", least=1.0 if one else None),
    )


def short_steps() -> tuple[Bar, ...]:
    found: list[Bar] = []
    for name in ("short_steps_1", "short_steps_8", "short_steps_32"):
        found += [*cpu(f"{name}."), Bar(name, "steps/s"), Bar(f"{name}.absurd", "steps/s")]
        found.append(Bar(f"{name}/absurd", "x", least=20))
    return tuple(found)


def wake_up() -> tuple[Bar, ...]:
    found: list[Bar] = []
    for sort in ("start", "signal", "message", "child"):
        found += [Bar(f"wake_up.{sort}_p50", "ms"), Bar(f"wake_up.{sort}_p99", "ms")]
    return (*found, *(Bar(f"wake_up.{sort}/start", "x") for sort in ("signal", "message", "child")))


def full_mailboxes() -> tuple[Bar, ...]:
    found: list[Bar] = []
    for name, most in (("claim_p50", 1.5), ("claim_p99", 1.5), ("look_p50", None), ("look_p99", None)):
        found += [Bar(f"full_mailboxes.{name}", "ms"), Bar(f"full_mailboxes.{name} full/empty", "x", most=most)]
    return (*found, Bar("full_mailboxes.next_p50", "ms"), Bar("full_mailboxes.next_p99", "ms"))


SINGLE = (
    *pickup(1),
    *pickup(100),
    *pickup(1000),
    Bar("claim_10.p50", "ms"),
    Bar("claim_10.p99", "ms", most=1.5),
    Bar("claim_10.full/empty", "x", most=1.5),
    Bar("claim_keys.p50", "ms"),
    Bar("claim_keys.p99", "ms", most=1.5),
    Bar("claim_keys.full/empty", "x", most=1.5),
    Bar("fan_out", "children/s"),
    Bar("fan_out.seconds", "s"),
    Bar("fan_out.wakes", "wakes", most=1),
    Bar("fan_out/jobs", "x"),
    Bar("messages", "messages/s"),
    Bar("messages/jobs", "x"),
    Bar("messages.batch", "messages/s"),
    Bar("messages.to_one", "messages/s"),
    *wake_up(),
    *full_mailboxes(),
    Bar("heartbeat_10k.p50", "ms"),
    Bar("heartbeat_10k.p99", "ms"),
    Bar("memory.idle", "MiB"),
    Bar("memory.busy", "MiB"),
    Bar("memory_search.p50", "ms"),
    Bar("memory_search.p95", "ms", most=20),
    Bar("memory_search.first", "ms"),
    Bar("memory_search.pause", "ms"),
    Bar("memory_write.p50", "ms"),
    Bar("memory_write.p95", "ms", most=10),
    Bar("task_latency.start_p50", "ms", most=100),
    Bar("task_latency.start_p99", "ms", most=200),
    Bar("task_latency.end_p50", "ms"),
    Bar("task_latency.end_p99", "ms"),
    Bar("tasks_100.seconds", "s"),
    Bar("tasks_100.at_once", "runs"),
    Bar("tasks_100.cpu_ms", "ms"),
    Bar("tasks_100.worker_mib", "MiB"),
    Bar("tasks_100.launcher_mib", "MiB"),
    Bar("sustained", "jobs/s"),
    Bar("sustained.last/first", "x", least=0.9),
)
COUNT = (
    Bar("count_beside_drain.alone", "jobs/s"),
    Bar("count_beside_drain.counted", "jobs/s"),
    Bar("count_beside_drain/alone", "x"),
    Bar("count_beside_drain.p50", "ms"),
)

POSTGRES = (
    *cpu("drain."),
    Bar("drain", "jobs/s", "drain", ratio=0.35, least=25_000, where_yardstick=70_000),
    *cpu("steps_1."),
    Bar("steps_1", "steps/s", "steps_1", ratio=0.60),
    *cpu("steps_32."),
    Bar("steps_32", "steps/s", "steps_32", ratio=0.40),
    *cpu("steps_128."),
    Bar("steps_128", "steps/s", "steps_128", ratio=0.33),
    *short_steps(),
    *graphile(1),
    *graphile(2),
    *cpu("drain_2."),
    Bar("drain_2", "jobs/s", "drain"),
    Bar("drain_2/drain_1", "x", least=1.3, where=("drain_2.idle_cores", 1.0)),
    Bar("drain_2.idle_cores", "cores"),
    *cpu("drain_4."),
    Bar("drain_4", "jobs/s", "drain"),
    *cpu("enqueue_bulk."),
    Bar("enqueue_bulk", "jobs/s", "enqueue_bulk", ratio=0.35),
    Bar("enqueue_1", "jobs/s", "commit_1", ratio=0.60),
    Bar("enqueue_32", "jobs/s", "commit_16", ratio=2.0),
    *COUNT,
    *SINGLE,
)

SQLITE = (
    *cpu("drain."),
    Bar("drain", "jobs/s", "drain", ratio=0.5, least=20_000),
    *cpu("steps_1."),
    Bar("steps_1", "steps/s", "steps_1"),
    *cpu("steps_32."),
    Bar("steps_32", "steps/s", "steps_32", ratio=0.5, least=20_000),
    *cpu("steps_128."),
    Bar("steps_128", "steps/s", "steps_128"),
    *short_steps(),
    *cpu("drain_2."),
    Bar("drain_2", "jobs/s", "drain"),
    Bar("drain_2/drain_1", "x"),
    Bar("drain_2.idle_cores", "cores"),
    *cpu("drain_4."),
    Bar("drain_4", "jobs/s", "drain"),
    Bar("drain_4.slowest/mean", "x", least=0.5),
    *cpu("enqueue_bulk."),
    Bar("enqueue_bulk", "jobs/s", "enqueue_bulk"),
    Bar("enqueue_1", "jobs/s", "commit_1"),
    Bar("enqueue_32", "jobs/s", "commit_32"),
    *COUNT,
    *SINGLE,
    Bar("write_4.p50", "ms"),
    Bar("write_4.p99", "ms", most=20),
)

BARS = {"postgres": POSTGRES, "sqlite": SQLITE}


def yardstick_of(store: str, workload: str) -> str | None:
    """The yardstick's measure that a workload is compared with."""
    return next((b.yardstick for b in BARS[store] if b.figure == workload), None)


def verdict(
    bar: Bar, product: float, yardstick: float | None, ratio: float | None, figures: Mapping[str, float]
) -> str:
    """`met` or `missed`; `not judged` where the bar does not hold for this machine; empty without a bar."""
    if not bar.is_set:
        return ""
    if bar.where is not None and figures.get(bar.where[0], 0.0) < bar.where[1]:
        return "not judged"
    reached = []
    if bar.ratio is not None and ratio is not None:
        reached.append(ratio >= bar.ratio)
    if bar.least is not None and (bar.where_yardstick is None or (yardstick or 0) >= bar.where_yardstick):
        reached.append(product >= bar.least)
    if bar.most is not None:
        reached.append(product <= bar.most)
    if not reached:
        return "not judged"
    return "met" if all(reached) else "missed"


def describe(bar: Bar) -> str:
    """The bar in the table."""
    parts = []
    if bar.ratio is not None:
        parts.append(f"ratio >= {bar.ratio:.2f}")
    if bar.least is not None:
        parts.append(
            f">= {bar.least:,g}" + (f" where yardstick >= {bar.where_yardstick:,g}" if bar.where_yardstick else "")
        )
    if bar.most is not None:
        parts.append(f"<= {bar.most:g}")
    text = ", ".join(parts)
    return f"{text} where {bar.where[0].partition('.')[2]} >= {bar.where[1]:g}" if bar.where else text
