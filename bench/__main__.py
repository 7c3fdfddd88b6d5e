"""python -m bench: measure perdure, the yardstick of this machine and Graphile Worker. Fails only where a result is
wrong, never where it is slow: people judge a missed bar, on a quiet machine."""

import argparse
import shlex
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bench.bars import yardstick_of
from bench.checks import Incorrect, LeftOut
from bench.machine import load, machine, warnings_only
from bench.report import Results, summary_of_bars, table, write_json, write_page
from bench.targets import TARGETS, Target
from bench.workloads import ONCE, POSTGRES_ONLY, SQLITE_ONLY, WORKLOADS
from bench.workloads.common import Sizes
from perdure.event_loop import run
from perdure.model.errors import PerdureError

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
QUICK = Sizes(jobs=4000, peer_jobs=4000, seconds=6, scale=0.01, samples=50, part=0.2)
FULL = Sizes()
PROCESSES = {"postgres": "2", "sqlite": "4"}


def options() -> argparse.Namespace:
    ap = argparse.ArgumentParser(prog="python -m bench", description="Measure perdure and the bare database.")
    ap.add_argument("--store", choices=[*TARGETS, "all"], default="all")
    ap.add_argument("--only", metavar="NAME", help=f"workloads, comma-separated: {', '.join(WORKLOADS)}")
    ap.add_argument("--rounds", type=int, metavar="N", help="rounds; figures are medians (default 5, with --quick 1)")
    ap.add_argument("--quick", action="store_true", help="small sizes and one round: does it work, roughly how fast")
    ap.add_argument("--jobs", type=int, metavar="N", help="jobs of a bulk enqueue or a drain (default 20000)")
    ap.add_argument("--seconds", type=float, help="of the sustained workload and of pickup_1 (default 60)")
    ap.add_argument(
        "--scale", type=float, help="claim_10, full_mailboxes: of 1M terminal, 100k delayed, 100k parked (default 0.1)"
    )
    ap.add_argument("--processes", metavar="2,4", help="drains by so many worker processes (default 2; on SQLite 4)")
    ap.add_argument("--peers", action="store_true", help="also install Absurd and measure it with short_steps")
    ap.add_argument(
        "--record", action="store_true", help="write bench/results/DATE.json and docs/performance.md as well"
    )
    ap.add_argument("--json", type=Path, metavar="FILE", help="write every round of every figure there")
    given = ap.parse_args()
    if unknown := set(given.only.split(",") if given.only else ()) - set(WORKLOADS):
        ap.error(f"unknown workload {', '.join(sorted(unknown))}; known: {', '.join(WORKLOADS)}")
    if not set((given.processes or "2").split(",")) <= {"2", "4"}:
        ap.error("--processes takes 2, 4 or 2,4")
    return given


def sizes(given: argparse.Namespace) -> Sizes:
    named = {name: getattr(given, name) for name in ("jobs", "seconds", "scale", "peers")}
    return replace(
        QUICK if given.quick else FULL, **{name: value for name, value in named.items() if value is not None}
    )


def chosen(store: str, only: str | None = None, processes: str | None = None) -> list[str]:
    """The workloads to run on a store, in order."""
    left_out = POSTGRES_ONLY if store == "sqlite" else SQLITE_ONLY
    if only:
        return [name for name in WORKLOADS if name in only.split(",") and name not in left_out]
    left_out |= {f"drain_{n}" for n in ("2", "4") if n not in (processes or PROCESSES[store]).split(",")}
    return [name for name in WORKLOADS if name not in left_out]


async def measure(target: Target, names: list[str], rounds: int, size: Sizes) -> Results:
    """All rounds; in each one the yardstick runs before the product and again after it."""
    results = Results(target.name, await target.about())

    async def yardstick(name: str) -> None:
        if measure := yardstick_of(target.name, name):
            results.yardstick.setdefault(name, []).append(await target.yardstick(measure, size.jobs))

    async def product(name: str) -> None:
        try:
            for figure, value in (await WORKLOADS[name](target, size)).items():
                results.product.setdefault(figure, []).append(value)
        except LeftOut as reason:
            results.left_out[name] = str(reason)
        except (Incorrect, PerdureError, TimeoutError) as error:
            results.wrong.append(f"{name}: {type(error).__name__}: {error}")

    for number in range(rounds):
        for name in names:
            if (number > 0 and name in ONCE) or name in results.left_out:
                continue
            progress(f"\r{target.name}: round {number + 1} of {rounds}: {name:<20}")
            for part in (yardstick, product, yardstick):
                await part(name)
    progress(f"\r{'':<60}\r")
    return results


def progress(text: str) -> None:
    """Print it where a person watches."""
    if sys.stderr.isatty():
        print(text, end="", file=sys.stderr, flush=True)


def main() -> int:
    given = options()
    warnings_only()
    rounds = given.rounds or (1 if given.quick else 5)
    size = sizes(given)
    command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
    before = load()
    print(f"{machine()}\n{command}\nload average {before:.2f} before", flush=True)
    began, everything = time.monotonic(), []
    for store in TARGETS if given.store == "all" else [given.store]:
        with TARGETS[store]() as target:
            results = run(measure(target, chosen(store, given.only, given.processes), rounds, size))
        everything.append(results)
        print(f"\n{table(results)}", flush=True)
    print(f"\n{summary_of_bars(everything)}")
    print(f"medians of {rounds} rounds; {time.monotonic() - began:.0f} s; load average {load():.2f} after")
    wrong = [f"{results.store}: {text}" for results in everything for text in results.wrong]
    if given.json:
        write_json(given.json, machine(), command, everything)
    if given.record and not wrong:
        RESULTS.mkdir(exist_ok=True)
        write_json(RESULTS / f"{datetime.now(UTC):%Y-%m-%d}.json", machine(), command, everything)
        write_page(PAGE, machine(), command, f"load average {before:.1f} before and {load():.1f} after", everything)
    for text in wrong:
        print(f"WRONG: {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
