"""The workers: started and ended as the seed says, until all kills are done."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from perdure.chaos.background import unless_failed
from perdure.chaos.errors import ChaosFailed
from perdure.chaos.harm import ENDED_BY_JOB
from perdure.chaos.processes import TIMEOUT, Child, ForkServer
from perdure.chaos.report import Report
from perdure.chaos.script import SKEWS, Lifetime, lifetimes
from perdure.chaos.worker_config import DRAIN, ENTRY, LEASE, LOST, TOO_MANY_HUNG, WorkerConfig

QUICK_START = 0.08
"""Seconds a worker needs to be ready on an idle machine. Where it needs longer, it also runs longer, so that jobs
make progress."""
SLOWEST = 5.0
LEAST_AFTER_STOP = 0.15
"""Seconds that a worker runs at least after it was stopped and continued."""
TERMINATED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
"""How a worker may end after SIGTERM: by itself, before its signal handlers were installed, or at the second one while a handler
does not stop."""
BY_JOBS = {ENDED_BY_JOB: "ended by jobs", TOO_MANY_HUNG: "worn out"}
"""How the jobs of a worker may end it, and the name of that in the report."""


class WorkerPool:
    """A number of slots, each with one worker at a time. A context: at its end every worker is dead.

    kills: the number of SIGKILLs in all. url: what workers connect to. deploy_every: seconds after which every slot has
    got the next release of the code, one slot after the other.
    """

    def __init__(
        self,
        report: Report,
        *,
        seed: int,
        slots: int,
        kills: int,
        url: str,
        tenant: str,
        directory: Path,
        deploy_every: float,
    ) -> None:
        self._report = report
        self._seed = seed
        self._kills = kills
        self._url = url
        self._tenant = tenant
        self._directory = directory
        self._deploy_every = deploy_every
        self._began = time.monotonic()
        self._finishing = False
        self._stack = ExitStack()
        self._changes: dict[Child, asyncio.Event] = {}
        self._servers: dict[float, ForkServer] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._generations: dict[Child, int] = {}
        self._leaving: set[Child] = set()
        self._numbers = range(slots)
        self._now: list[Child | None] = [None] * slots

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            for skew in {SKEWS[n % len(SKEWS)] for n in self._numbers}:
                server = stack.enter_context(ForkServer(ENTRY, skew=skew, on_message=self._received))
                self._servers[skew] = server
                loop.add_reader(server.fileno(), self._receive, server)
                stack.callback(loop.remove_reader, server.fileno())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._failed.cancel()

    def _receive(self, server: ForkServer) -> None:
        try:
            server.receive()
        except ChaosFailed as error:
            asyncio.get_running_loop().remove_reader(server.fileno())
            if not self._failed.done():
                self._failed.set_exception(error)

    def _received(self, child: Child) -> None:
        if child.said and child.said[-1] == LOST:
            child.said.pop()
            self._report.done["leases lost"] += 1
        if child in self._changes:
            self._changes[child].set()

    # -- all slots --------------------------------------------------------------------------------------------------------

    async def run_all(self) -> None:
        """Start and end the workers of every slot as the seed says, until all kills are done."""
        await unless_failed(asyncio.gather(*(self._run_slot(n) for n in self._numbers)), [self._failed])

    def replace_ended(self) -> None:
        """Start a worker, which runs undisturbed, in every slot that has none. Some have the last release of the code and
        some the one before, so that each job meets code that fits; a worker of another release is stopped."""
        for number in self._numbers:
            child = self._now[number]
            if child is not None and child.exit_code is None:
                if self._generations[child] % 2 != self._generation(number) % 2 and child not in self._leaving:
                    self._leaving.add(child)
                    child.signal(signal.SIGTERM)
                continue
            if child is not None:
                self._ended(child, number, TERMINATED if child in self._leaving else ())
            self._start(number, Lifetime(0, "term"))

    async def stop_all(self) -> None:
        """Stop all by SIGTERM; it is a fault if one does not end."""
        for number in self._numbers:
            child = self._now[number]
            if child is not None and child.exit_code is None:
                child.signal(signal.SIGTERM)
        for number in self._numbers:
            if (child := self._now[number]) is not None:
                await self._end(number, child, graceful=True)

    # -- one slot ----------------------------------------------------------------------------------------------------------

    async def _run_slot(self, number: int) -> None:
        for lifetime in lifetimes(self._seed, number):
            if self._report.kills >= self._kills:
                self._finishing = True
                for changed in self._changes.values():
                    changed.set()
                return
            await self._run_worker(number, lifetime)

    def _generation(self, number: int) -> int:
        """How often the code of a slot has changed by now. A slot that is alone keeps its code: no other could take its jobs."""
        slots = len(self._numbers)
        if slots == 1:
            return 0
        if self._finishing:
            return self._report.done["deploys"] + number % 2
        return int((time.monotonic() - self._began) / self._deploy_every + number / slots)

    def _start(self, number: int, lifetime: Lifetime) -> Child:
        generation = self._generation(number)
        if not self._finishing:
            self._report.done["deploys"] = max(generation, self._report.done["deploys"])
        config = WorkerConfig(self._url, self._tenant, str(self._directory), LEASE, lifetime.concurrency, generation)
        server = self._servers[SKEWS[number % len(SKEWS)]]
        child = server.start(self._directory / f"worker-{number + 1}.log", config.text())
        self._changes[child] = asyncio.Event()
        self._generations[child] = generation
        self._now[number] = child
        self._report.done["workers"] += 1
        return child

    async def _run_worker(self, number: int, lifetime: Lifetime) -> None:
        child = self._start(number, lifetime)
        began = time.monotonic()
        if not lifetime.early and not await self._until(child, lambda: bool(child.said), TIMEOUT):
            raise ChaosFailed(f"no worker starts; its log is {self._directory}/worker-{number + 1}.log")
        slowness = min(max((time.monotonic() - began) / QUICK_START, 1.0), SLOWEST)
        seconds = lifetime.seconds if lifetime.long else lifetime.seconds * slowness
        await self._until(child, lambda: self._finishing, seconds)
        if child.exit_code is not None:
            self._ended(child, number)
            return
        if self._finishing:
            return
        await self._end_as_planned(number, child, lifetime)

    async def _end_as_planned(self, number: int, child: Child, lifetime: Lifetime) -> None:
        done = self._report.done
        if lifetime.end in ("term", "term2"):
            child.signal(signal.SIGTERM)
            if lifetime.end == "term2":
                await self._until(child, lambda: False, 0.05)  # two signals at the same moment are one
                child.signal(signal.SIGTERM)
            done["terms"] += 1
            await self._end(number, child, graceful=True)
            return
        if lifetime.end in ("stop", "freeze"):
            child.stop()
            done["stops"] += 1
            await self._until(child, lambda: self._finishing, lifetime.pause)
            if lifetime.end == "stop" or self._finishing:
                child.resume()
                await self._until(child, lambda: self._finishing, max(lifetime.seconds, LEAST_AFTER_STOP))
        if done["kills"] < self._kills:
            done["kills"] += 1
            child.signal(signal.SIGKILL)
            await self._end(number, child, graceful=False)

    async def _end(self, number: int, child: Child, *, graceful: bool) -> None:
        limit = DRAIN + 20 if graceful else TIMEOUT
        if not await self._until(child, lambda: child.exit_code is not None, limit):
            self._report.faults.append(f"a worker did not end within {limit:g} s of its signal")
            child.kill()
            self._forget(number, child)
            return
        self._ended(child, number, TERMINATED if graceful else (-signal.SIGKILL, *TERMINATED))

    def _ended(self, child: Child, number: int, expected: Collection[int | None] = ()) -> None:
        """A worker has ended: as expected, by one of its jobs, or it is a fault."""
        self._forget(number, child)
        if child.exit_code in expected:
            return
        if child.exit_code in BY_JOBS:
            self._report.done[BY_JOBS[child.exit_code]] += 1
            return
        log = (self._directory / f"worker-{number + 1}.log").read_text(errors="replace").splitlines()
        last = next((line for line in reversed(log) if line.strip()), "")
        self._report.faults.append(f"a worker ended by itself with exit code {child.exit_code}: {last}")

    def _forget(self, number: int, child: Child) -> None:
        self._changes.pop(child, None)
        self._generations.pop(child, None)
        self._leaving.discard(child)
        self._now[number] = None

    async def _until(self, child: Child, condition: Callable[[], bool], limit: float) -> bool:
        """Wait until the condition is true or the child has ended; False if neither happens within `limit` seconds."""
        deadline = time.monotonic() + limit
        changed = self._changes[child]
        while True:
            changed.clear()  # before checking, which receives messages
            if condition() or child.exit_code is not None:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await changed.wait()
