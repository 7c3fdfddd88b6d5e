"""python -m bench: measure perdure beside the yardstick of this machine. Fails only where a result is wrong, never where it
is slow: a bar is a matter for people and for quiet machines."""

import argparse
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.bars import yardstick_of
from bench.checks import Incorrect
from bench.machine import load, machine, quiet
from bench.places import PLACES, Place
from bench.report import Found, table, write_json, write_page
from bench.workloads import ONCE, WORKLOADS, Sizes
from perdure.app import run
from perdure.model.errors import PerdureError

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
QUICK = Sizes(jobs=4000, seconds=6, scale=0.01, samples=50, part=0.2)
FULL = Sizes()
BY_PROCESSES = {"postgres": (), "sqlite": (4,)}


def options() -> argparse.Namespace:
    ap = argparse.ArgumentParser(prog="python -m bench", description="Measure perdure beside the bare database.")
    ap.add_argument("--store", choices=[*PLACES, "all"], default="all")
    ap.add_argument("--only", metavar="NAME", help=f"workloads, comma-separated: {', '.join(WORKLOADS)}")
    ap.add_argument("--rounds", type=int, metavar="N", help="rounds; figures are medians (default 5, with --quick 1)")
    ap.add_argument("--quick", action="store_true", help="small sizes and one round: does it work, roughly how fast")
    ap.add_argument("--jobs", type=int, metavar="N", help="jobs of a bulk enqueue or a drain (default 20000)")
    ap.add_argument("--seconds", type=float, help="of the sustained workload (default 60)")
    ap.add_argument("--scale", type=float, help="claim_10: of 1M terminal, 100k delayed, 100k parked (default 0.1)")
    ap.add_argument("--processes", metavar="2,4", help="also drain by so many worker processes (2 and 4 are known)")
    ap.add_argument(
        "--record", action="store_true", help="write bench/results/DATE.json and docs/performance.md as well"
    )
    ap.add_argument("--json", type=Path, metavar="FILE", help="write every round of every figure there")
    given = ap.parse_args()
    chosen = given.only.split(",") if given.only else []
    if unknown := set(chosen) - set(WORKLOADS):
        ap.error(f"unknown workload {', '.join(sorted(unknown))}; known: {', '.join(WORKLOADS)}")
    if not set((given.processes or "2").split(",")) <= {"2", "4"}:
        ap.error("--processes takes 2, 4 or 2,4")
    return given


def sizes(given: argparse.Namespace) -> Sizes:
    base = QUICK if given.quick else FULL
    return Sizes(
        jobs=given.jobs or base.jobs,
        seconds=given.seconds or base.seconds,
        scale=base.scale if given.scale is None else given.scale,
        samples=base.samples,
        part=base.part,
    )


def chosen(given: argparse.Namespace, store: str) -> list[str]:
    if given.only:
        return [name for name in WORKLOADS if name in given.only.split(",")]
    processes = given.processes.split(",") if given.processes else [str(n) for n in BY_PROCESSES[store]]
    left_out = {f"drain_{n}" for n in ("2", "4") if n not in processes}
    if store == "postgres":
        left_out.add("write_4")  # a question that only a shared file raises
    return [name for name in WORKLOADS if name not in left_out]


async def measure(place: Place, names: list[str], rounds: int, size: Sizes) -> Found:
    """All rounds; in each one the yardstick runs before the product and again after it."""
    found = Found(place.name, await place.about())

    async def yardstick(name: str) -> None:
        if beside := yardstick_of(place.name, name):
            found.yardstick.setdefault(name, []).append(await place.yardstick(beside, size.jobs))

    async def product(name: str) -> None:
        try:
            for figure, value in (await WORKLOADS[name](place, size)).items():
                found.product.setdefault(figure, []).append(value)
        except (Incorrect, PerdureError, TimeoutError) as error:
            found.wrong.append(f"{name}: {type(error).__name__}: {error}")

    for number in range(rounds):
        for name in names:
            if number > 0 and name in ONCE:
                continue
            say(f"\r{place.name}: round {number + 1} of {rounds}: {name:<14}")
            for part in (yardstick, product, yardstick):
                await part(name)
    say(f"\r{'':<60}\r")
    return found


def say(text: str) -> None:
    """Progress, for whoever watches."""
    if sys.stderr.isatty():
        print(text, end="", file=sys.stderr, flush=True)


def main() -> int:
    given = options()
    quiet()
    rounds = given.rounds or (1 if given.quick else 5)
    size = sizes(given)
    command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
    before = load()
    print(f"{machine()}\n{command}\nload average {before:.2f} before", flush=True)
    began, everything = time.monotonic(), []
    for store in PLACES if given.store == "all" else [given.store]:
        with PLACES[store]() as place:
            found = run(measure(place, chosen(given, store), rounds, size))
        everything.append(found)
        print(f"\n{table(found)}", flush=True)
    print(f"\nmedians of {rounds} rounds; {time.monotonic() - began:.0f} s; load average {load():.2f} after")
    wrong = [f"{found.store}: {text}" for found in everything for text in found.wrong]
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
