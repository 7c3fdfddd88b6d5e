"""The workers: started, and ended as their fates say, until calm is called for."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from perdure.chaos.errors import ChaosFailed
from perdure.chaos.processes import PATIENCE, Child, Nursery
from perdure.chaos.report import Report
from perdure.chaos.script import LEASE, SKEWS, Fate, fates
from perdure.chaos.tasks import unless_broken
from perdure.chaos.worker_config import DRAIN, ENTRY, LOST, Orders

QUICK_START = 0.08
"""Seconds a worker takes to be ready on a machine with nothing else to do; where it takes longer, it lives longer, so that
jobs get somewhere."""
SLOWEST = 5.0
AWAKE = 0.15
"""Seconds that one who was stopped has at least to do what it believes it may."""
TERMINATED = (0, -signal.SIGTERM)
"""How a worker may end after SIGTERM: by itself, or before it knew what to do about signals."""


class Workforce:
    """So many places, each with one worker at a time. A context: at its end every worker is dead.

    kills: how many SIGKILLs there shall be in all. url: what workers connect to.
    """

    def __init__(
        self, report: Report, *, seed: int, places: int, kills: int, url: str, tenant: str, directory: Path
    ) -> None:
        self._report = report
        self._seed = seed
        self._kills = kills
        self._url = url
        self._tenant = tenant
        self._directory = directory
        self._calm = False
        self._stack = ExitStack()
        self._news: dict[Child, asyncio.Event] = {}
        self._nurseries: dict[float, Nursery] = {}
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._numbers = range(places)
        self._now: list[Child | None] = [None] * places

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            for skew in {SKEWS[n % len(SKEWS)] for n in self._numbers}:
                nursery = stack.enter_context(Nursery(ENTRY, skew=skew, told=self._told))
                self._nurseries[skew] = nursery
                loop.add_reader(nursery.fileno(), self._hear, nursery)
                stack.callback(loop.remove_reader, nursery.fileno())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._broken.cancel()

    def _hear(self, nursery: Nursery) -> None:
        try:
            nursery.hear()
        except ChaosFailed as error:
            asyncio.get_running_loop().remove_reader(nursery.fileno())
            if not self._broken.done():
                self._broken.set_exception(error)

    def _told(self, child: Child) -> None:
        if child.said and child.said[-1] == LOST:
            child.said.pop()
            self._report.done["leases lost"] += 1
        if child in self._news:
            self._news[child].set()

    # -- the whole --------------------------------------------------------------------------------------------------------

    async def rage(self) -> None:
        """Let the workers of every place live and end as their fates say, until all kills are done."""
        await unless_broken(asyncio.gather(*(self._suffer(n) for n in self._numbers)), [self._broken])

    def replace_the_dead(self) -> None:
        """A worker in every place, who is left alone."""
        for number in self._numbers:
            child = self._now[number]
            if child is None or child.exit_code is not None:
                if child is not None:
                    self._ended_by_itself(child, number)
                self._start(number, Fate(0, "term"))

    async def dismiss(self) -> None:
        """End all gracefully: they must do so."""
        for number in self._numbers:
            child = self._now[number]
            if child is not None and child.exit_code is None:
                child.signal(signal.SIGTERM)
        for number in self._numbers:
            if (child := self._now[number]) is not None:
                await self._end(number, child, graceful=True)

    # -- one place ----------------------------------------------------------------------------------------------------------

    async def _suffer(self, number: int) -> None:
        for fate in fates(self._seed, number):
            if self._report.kills >= self._kills:
                self._calm = True
                for news in self._news.values():
                    news.set()
                return
            await self._live(number, fate)

    def _start(self, number: int, fate: Fate) -> Child:
        orders = Orders(self._url, self._tenant, str(self._directory), LEASE, fate.concurrency)
        nursery = self._nurseries[SKEWS[number % len(SKEWS)]]
        child = nursery.start(self._directory / f"worker-{number + 1}.log", orders.text())
        self._news[child] = asyncio.Event()
        self._now[number] = child
        self._report.done["workers"] += 1
        return child

    async def _live(self, number: int, fate: Fate) -> None:
        child = self._start(number, fate)
        began = time.monotonic()
        if not fate.early and not await self._until(child, lambda: bool(child.said), PATIENCE):
            raise ChaosFailed(f"no worker comes up; its log is {self._directory}/worker-{number + 1}.log")
        slowness = min(max((time.monotonic() - began) / QUICK_START, 1.0), SLOWEST)
        await self._until(child, lambda: self._calm, fate.life * slowness)
        if child.exit_code is not None:
            self._ended_by_itself(child, number)
            return
        if self._calm:
            return
        await self._harm(number, child, fate)

    async def _harm(self, number: int, child: Child, fate: Fate) -> None:
        done = self._report.done
        if fate.end in ("term", "term2"):
            child.signal(signal.SIGTERM)
            if fate.end == "term2":
                await self._until(child, lambda: False, 0.05)  # two signals at the same moment are one
                child.signal(signal.SIGTERM)
            done["terms"] += 1
            await self._end(number, child, graceful=True)
            return
        if fate.end in ("stop", "freeze"):
            child.stop()
            done["stops"] += 1
            await self._until(child, lambda: self._calm, fate.pause)
            if fate.end == "stop" or self._calm:
                child.go_on()
                await self._until(child, lambda: self._calm, max(fate.life, AWAKE))
        if done["kills"] < self._kills:
            done["kills"] += 1
            child.signal(signal.SIGKILL)
            await self._end(number, child, graceful=False)

    async def _end(self, number: int, child: Child, *, graceful: bool) -> None:
        limit = DRAIN + 20 if graceful else PATIENCE
        if not await self._until(child, lambda: child.exit_code is not None, limit):
            self._report.faults.append(f"a worker did not end within {limit:g} s of its signal")
            child.kill()
        elif child.exit_code not in (TERMINATED if graceful else (-signal.SIGKILL, *TERMINATED)):
            self._ended_by_itself(child, number)
        self._forget(number, child)

    def _ended_by_itself(self, child: Child, number: int) -> None:
        log = (self._directory / f"worker-{number + 1}.log").read_text(errors="replace").splitlines()
        last = next((line for line in reversed(log) if line.strip()), "")
        self._report.faults.append(f"a worker ended by itself with exit code {child.exit_code}: {last}")
        self._forget(number, child)

    def _forget(self, number: int, child: Child) -> None:
        self._news.pop(child, None)
        self._now[number] = None

    async def _until(self, child: Child, condition: Callable[[], bool], limit: float) -> bool:
        """Wait until the condition is true or the child is gone; False if neither is so after `limit` seconds."""
        deadline = time.monotonic() + limit
        news = self._news[child]
        while True:
            news.clear()  # before looking: to look is to hear what is new
            if condition() or child.exit_code is not None:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await news.wait()
