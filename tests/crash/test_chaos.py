"""Workers killed, stopped past their leases and terminated at random while every kind of job runs: all of them end as they
would have, and the database is in order at every moment.

PERDURE_SOAK_SECONDS: how long, both stores together (30). PERDURE_SOAK_SEED: what happens, as far as that is decided here.
"""

import asyncio
import os
import random
import signal
import time
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from perdure import App, Approval, Request, Status
from perdure.model.errors import Conflict
from tests.crash.apps import Errand, Op, make_app, result_of
from tests.crash.invariants import Case, Snapshot, check
from tests.crash.processes import Child, Crew, all_ended, answering

pytestmark = pytest.mark.crash

SECONDS = float(os.environ.get("PERDURE_SOAK_SECONDS", "30")) / 2
SEED = int(os.environ.get("PERDURE_SOAK_SEED") or random.randrange(1_000_000))
WORKERS = 3
LEASE = 1.5
OPEN_JOBS = 40
NO_OUT_OF = 8
"""Every so many approvals are denied."""


@pytest.mark.slow
async def test_chaos(crew: Crew) -> None:
    print(f"to repeat: PERDURE_SOAK_SEED={SEED} PERDURE_SOAK_SECONDS={2 * SECONDS:g}")
    async with make_app(crew.url) as app:
        chaos = Chaos(crew, app)
        async with asyncio.timeout(SECONDS + 200), answering(app, crew.place, chaos.answer):
            await chaos.rage()
            await all_ended(app, patience=120)
        await crew.dismiss(*chaos.workers)
    snapshot = await check(crew.url, chaos.jobs, at_rest=True)
    for id, errand in chaos.jobs.items():
        chaos.judge(snapshot.of(id), errand)
    print(chaos.report(snapshot))


class Chaos:
    """The driver: one random decision after the other."""

    def __init__(self, crew: Crew, app: App) -> None:
        self.crew = crew
        self.app = app
        self.rng = random.Random(SEED)
        self.jobs: dict[UUID, Errand] = {}
        self.cancelled: set[UUID] = set()
        self.workers: list[Child] = []
        self.wakes: dict[Child, float] = {}
        self.done: dict[str, int] = {}

    async def rage(self) -> None:
        """Do harm for a while, then leave workers that work."""
        tending = asyncio.create_task(self.keep_tending())
        try:
            until = time.monotonic() + SECONDS
            looked_at = checked = time.monotonic()
            actions = [
                self.kill,
                self.stop,
                self.terminate,
                self.cancel,
                self.cancel,
                self.hurry,
                self.nothing,
                self.nothing,
            ]
            while time.monotonic() < until:
                await self.enqueue()
                await self.rng.choice(actions)()
                await asyncio.sleep(self.rng.uniform(0.02, 0.25))
                if time.monotonic() - checked > max(2.0, 10 * (checked - looked_at)):
                    looked_at = time.monotonic()
                    await check(self.crew.url, self.jobs)
                    checked = time.monotonic()
        finally:
            tending.cancel()
            for child in self.wakes:
                child.go_on()
        self.wakes.clear()
        self.tend()

    async def keep_tending(self) -> None:
        """In a task of its own: one that is stopped in the middle of a commit keeps everybody waiting, the driver too."""
        while True:
            self.tend()
            await asyncio.sleep(0.05)

    def tend(self) -> None:
        """Replace the dead and wake those that have been stopped for long enough."""
        self.workers = [child for child in self.workers if child.exit_code is None]
        for child, at in list(self.wakes.items()):
            if child.exit_code is not None or at <= time.monotonic():
                child.go_on()
                del self.wakes[child]
        while len(self.workers) < WORKERS:
            self.workers.append(self.crew.start(lease=LEASE, concurrency=self.rng.choice((2, 10)), drain_timeout=5))

    def count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    # --- actions -----------------------------------------------------------------------------------------------------

    async def enqueue(self) -> None:
        """A few more jobs, if there are not too many."""
        counts = await self.app.count()
        if sum(n for status, n in counts.items() if not Status(status).terminal) > OPEN_JOBS:
            return
        errands = [self.errand() for _ in range(self.rng.randint(1, 6))]
        if self.rng.random() < 0.5:
            handles = await self.app.enqueue_many([Request("errand", errand) for errand in errands])
        else:
            handles = [await self.app.enqueue("errand", errand, priority=self.rng.randint(1, 9)) for errand in errands]
        self.jobs.update(zip((handle.id for handle in handles), errands, strict=True))

    async def kill(self) -> None:
        """SIGKILL, also to one that is stopped."""
        if self.workers:
            self.rng.choice(self.workers).kill()
            self.count("kills")

    async def stop(self) -> None:
        """SIGSTOP, for less or more than a lease."""
        child = self.rng.choice(self.workers) if self.workers else None
        if child is not None and child not in self.wakes and len(self.wakes) < WORKERS - 1:
            child.stop()
            self.wakes[child] = time.monotonic() + self.rng.uniform(0.2, 2.2 * LEASE)
            self.count("stops")

    async def terminate(self) -> None:
        """SIGTERM, sometimes twice."""
        if not self.workers:
            return
        child = self.rng.choice(self.workers)
        child.signal(signal.SIGTERM)
        if self.rng.random() < 0.3:
            await asyncio.sleep(0.05)
            child.signal(signal.SIGTERM)
        self.count("terminations")

    async def cancel(self) -> None:
        """Somebody thinks better of a job."""
        if self.jobs:
            id = self.rng.choice(list(self.jobs)[-OPEN_JOBS:])
            with suppress(Conflict):
                self.cancelled.add(id)
                await self.app.cancel(id, force=self.rng.random() < 0.3)
                self.count("cancels")

    async def hurry(self) -> None:
        """Somebody cannot wait."""
        if self.jobs:
            with suppress(Conflict):
                await self.app.retry_now(self.rng.choice(list(self.jobs)[-OPEN_JOBS:]))

    async def nothing(self) -> None:
        """A moment of peace."""

    # --- jobs --------------------------------------------------------------------------------------------------------

    def errand(self) -> Errand:
        """Any kind of job."""
        return Errand([self.op(f"op{n}") for n in range(self.rng.randint(1, 6))])

    def op(self, name: str) -> Op:
        brief = self.rng.choice((0.0, 0.01, 0.05, 0.3))
        match self.rng.randrange(12):
            case 0 | 1:
                return Op("step", name, brief)
            case 2:
                return Op("thread", name)
            case 3:
                return Op("both", name, brief)
            case 4:
                return Op("tool", name, brief)
            case 5:
                return Op("tool", name, brief, on_unknown="retry")
            case 6:
                return Op("sleep", name, self.rng.choice((0.05, 0.3, 0.8)))
            case 7:
                return Op("approve", name)
            case 8:
                return Op("checkpoint", name)
            case 9:
                return Op("usage", name)
            case 10:
                return Op("stumble", name, times=self.rng.randint(1, 3))
            case _:
                return Op("snooze", name, brief, times=self.rng.randint(1, 2))

    def answer(self, asked: Approval) -> dict[str, Any] | None:
        """What the clerk says: always the same to the same approval."""
        chance = asked.id.int
        if asked.kind == "question":
            outcome = "happened" if chance % 2 else "retry"
            return {"outcome": outcome, "result": asked.payload["tool"]}
        return {} if chance % NO_OUT_OF else None

    def judge(self, case: Case, errand: Errand) -> None:
        """The job ended as it would have in peace, no step ran again once recorded, no tool was silently called again."""
        log = case.log()
        match case.status:
            case "COMPLETED":
                assert case.job["result"] == result_of(errand), log
            case "FAILED":
                assert case.job["error_kind"] == "denied", log
                assert "DENIED" in {approval["status"] for approval in case.approvals.values()}, log
            case "CANCELLED":
                assert case.id in self.cancelled, log
            case _:
                raise AssertionError(log)
        effects = self.crew.effects(case.id)
        for recorded in case.events:
            if recorded["type"] in ("node_finished", "tool_returned"):
                name = recorded["payload"]["key"].rpartition("[")[2].rstrip("]")
                tries = [attempt for attempt, what in effects if what == name]
                assert max(tries, default=0) <= recorded["attempt"], f"'{name}' ran again\n{log}"
        for op in errand.ops:
            calls = case.keys("tool_called").count(op.name)
            assert len([what for _, what in effects if what == op.name]) <= calls or op.do != "tool", log
            if op.do == "tool" and op.on_unknown == "ask":
                asked = [a for a in case.approvals.values() if a["key"].startswith(f"{op.name}?")]
                again = sum((a["decision_payload"] or {}).get("outcome") == "retry" for a in asked)
                assert calls <= 1 + again, f"'{op.name}' was silently called again\n{log}"

    def report(self, snapshot: Snapshot) -> str:
        """What was done, in a line."""
        attempts = sum(job["attempt"] for job in snapshot.jobs.values())
        return f"{len(self.jobs)} jobs, {attempts} attempts, {dict(snapshot.statuses())}, {self.done}"
