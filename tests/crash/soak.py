"""`make soak`: thousands of kills on SQLite and on PostgreSQL, and both summaries. `python -m tests.crash.soak [SEED]`

PERDURE_SOAK_KILLS: how many on each (2000). Ends with 1 if a single promise was broken.
"""

import os
import random
import sys
import time

from perdure.app import run
from perdure.chaos.harness import Chaos, Plan
from perdure.chaos.report import Report
from perdure.cli.chaos import page
from tests.postgres_server import PostgresServer

KILLS = int(os.environ.get("PERDURE_SOAK_KILLS", "2000"))
DEPLOY_EVERY = 60.0
EVERY = 30.0
"""Seconds between two lines about how far it is."""


class Progress:
    """A line now and then."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next = time.monotonic() + EVERY

    def __call__(self, report: Report) -> None:
        if time.monotonic() >= self._next:
            self._next += EVERY
            print(f"{self._name}, {report.phase}: {report.kills} kills, {report.enqueued} jobs", flush=True)


def soak(name: str, plan: Plan) -> bool:
    """One store; whether all promises were kept."""
    print(f"{name}: {plan.kills} kills, seed {plan.seed}", flush=True)
    report = run(Chaos(plan, on_report=Progress(name)).run())
    print(f"\n{name}\n{page(report, plan).plain}", flush=True)
    return not report.faults


def main() -> int:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.randrange(1_000_000)
    good = soak("SQLite", Plan(None, KILLS, seed, deploy_every=DEPLOY_EVERY))
    with PostgresServer(own=True) as server:

        async def restart() -> None:
            server.restart()  # blocks, and in this very thread: the server lives no longer than the thread that starts it

        good &= soak(
            "PostgreSQL", Plan(server.create_database("soak"), KILLS, seed, deploy_every=DEPLOY_EVERY, restart=restart)
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
