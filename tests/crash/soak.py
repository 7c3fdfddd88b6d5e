"""`make soak`: thousands of kills on SQLite and on PostgreSQL, and both summaries. `python -m tests.crash.soak [tasks] [SEED]`

With `tasks` workers and launchers are killed while coding CLIs run, the real codex among them where npm is there.
PERDURE_SOAK_KILLS: how many on each (2000; 200 with `tasks`). Ends with 1 if a single promise was broken.
"""

import os
import random
import sys
import tempfile
import time
from pathlib import Path

from perdure.chaos.harness import Chaos, Plan
from perdure.chaos.report import Report
from perdure.cli.chaos import page
from perdure.event_loop import run
from tests.crash.fleet import Fleet, Setting
from tests.postgres_server import PostgresServer
from tests.tools import clis
from tests.tools.api import Api

KILLS = int(os.environ.get("PERDURE_SOAK_KILLS", "2000"))
TASK_KILLS = int(os.environ.get("PERDURE_SOAK_KILLS", "200"))
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


def soak_tasks(name: str, url: str | None, seed: int, codex: str, api: str) -> bool:
    """Tasks on one store; whether all promises were kept."""
    print(f"{name}: {TASK_KILLS} kills while CLIs run, {'with' if codex else 'without'} codex, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="perdure-soak-") as folder:
        place = Path(folder).resolve() / "fleet"
        setting = Setting(url or f"sqlite:///{folder}/perdure.db", str(place), codex, api)
        result = run(Fleet(setting, TASK_KILLS, seed).run())
    print("\n".join([f"{name}: {result}", *(f"fault: {fault}" for fault in result.faults)]), flush=True)
    return not result.faults


def tasks(seed: int) -> int:
    """Both stores, with tasks."""
    os.environ["FLEET_KEY"] = "sk-perdure-soak-0123456789"
    codex = str(clis.installed()) if clis.npm() else ""
    with Api() as api:
        url = f"{api.url('write')}/v1" if codex else ""
        good = soak_tasks("SQLite", None, seed, codex, url)
        with PostgresServer(own=True) as server:
            good &= soak_tasks("PostgreSQL", server.create_database("soak"), seed, codex, url)
    return 0 if good else 1


def main() -> int:
    words = sys.argv[1:]
    with_tasks = words[:1] == ["tasks"]
    numbers = words[1:] if with_tasks else words
    seed = int(numbers[0]) if numbers else random.randrange(1_000_000)
    if with_tasks:
        return tasks(seed)
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
