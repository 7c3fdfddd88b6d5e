"""A whole run: the ground, the workers and the people on it, the harm, the calm after it, and the proof."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.chaos.actors import OPEN, Books, Clerk, Meddler, Producer
from perdure.chaos.errors import ChaosFailed
from perdure.chaos.faults import Restart, Troublemaker
from perdure.chaos.jobs import make_app
from perdure.chaos.proof import check, prove
from perdure.chaos.proxy import Proxy, reachable
from perdure.chaos.report import Report
from perdure.chaos.setup import clear, end_all, prepare
from perdure.chaos.tasks import meanwhile
from perdure.chaos.workforce import Workforce
from perdure.model.errors import PerdureError, StoreUnreachable
from perdure.runtime.client.client import Client

OPEN_PER_WORKER = 12
CHECK_EVERY = 3.0
"""Seconds between two looks at the database as a whole, while harm is done."""

Told = Callable[[Report], None]


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    url: the database; None is a throw-away SQLite file. jobs: run at least so many, even if that takes longer than the
    kills. restart: restarts the database, now and then. keep: leave the jobs in the database. directory: where the witness
    and the logs go, None is a temporary place. patience: seconds the last jobs have to end once all harm is over.
    """

    url: str | None
    kills: int
    seed: int
    workers: int = 4
    jobs: int = 0
    keep: bool = False
    allow_real_jobs: bool = False
    restart: Restart | None = None
    directory: Path | None = None
    patience: float = 120.0


class Chaos:
    """One run of a plan. told: called about once a second with the report as it stands.

    books: what was acknowledged to those who used the database.
    """

    def __init__(self, plan: Plan, *, told: Told | None = None) -> None:
        self._plan = plan
        self._told = told
        self.report = Report(plan.seed, f"chaos-{secrets.token_hex(4)}")
        self._place = Path(tempfile.gettempdir())
        self.books = Books()

    async def run(self) -> Report:
        """Do it all; what must not be stands in the report's `faults`.

        Raises RealJobs, ConfigError, ChaosFailed, and what opening the database raises: then nothing was proven. However it
        ends, no process is left. The jobs are deleted at the end unless they are to be kept, or there is a fault.
        """
        began = time.monotonic()
        self._place = self._make_place()
        url = self._plan.url or f"sqlite:///{self._place}/perdure.db"
        kept = False
        try:
            real = await prepare(url, allow_real_jobs=self._plan.allow_real_jobs)
            kept = True
            await self._run(url, real=real)
            kept = self._plan.keep or bool(self.report.faults)
            if not kept:
                async with self._client(url) as client:
                    await clear(client)
        except asyncio.CancelledError:
            if kept and not self._plan.keep:
                kept = not await self._clean_up(url)
            raise
        finally:
            self.report.took = time.monotonic() - began
            if kept:
                self.report.place = str(self._place)
            else:
                shutil.rmtree(self._place, ignore_errors=True)
        return self.report

    def _make_place(self) -> Path:
        directory = self._plan.directory
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix="perdure-chaos-", dir=directory)).resolve()
        except OSError as error:
            raise ChaosFailed(f"no directory for the witness and the logs: {error}", hint="name another one") from None

    async def _clean_up(self, url: str) -> bool:
        """After an interruption: leave nothing in the database, if that is quick."""
        with suppress(PerdureError, TimeoutError):
            async with asyncio.timeout(10), self._client(url) as client:
                await end_all(client)
                await clear(client)
                return True
        return False

    @asynccontextmanager
    async def _client(self, url: str) -> AsyncIterator[Client]:
        app = make_app(url, self.report.tenant, self._place)
        try:
            await app.open()
            yield app.client
        finally:
            await app.close()

    async def _run(self, url: str, *, real: bool) -> None:
        plan, report = self._plan, self.report
        async with AsyncExitStack() as stack:
            proxy = await self._proxy(stack, url)
            through = url if proxy is None else proxy.url
            client = await stack.enter_async_context(self._client(through))
            producer, clerk = Producer(client, self.books, report, plan.seed), Clerk(client, report, self._place)
            trouble = Troublemaker(
                report,
                Meddler(client, self.books, report),
                seed=plan.seed,
                kills=plan.kills,
                url=url,
                proxy=proxy,
                restart=plan.restart if url.startswith("postgres") and not real else None,
            )
            stack.push_async_callback(trouble.abandon)
            workforce = stack.enter_context(
                Workforce(
                    report,
                    seed=plan.seed,
                    places=plan.workers,
                    kills=plan.kills,
                    url=through,
                    tenant=report.tenant,
                    directory=self._place,
                )
            )
            self._note_what_is_left_out(url, proxied=proxy is not None, real=real)
            straight = await stack.enter_async_context(self._client(url))
            began = time.monotonic()
            async with meanwhile(self._tick(proxy), clerk.answer_all()) as watch:
                async with meanwhile(
                    producer.keep(OPEN_PER_WORKER * plan.workers),
                    trouble.make(),
                    self._look_on(straight),
                ) as rage:
                    report.phase = "harm"
                    await watch(rage(workforce.rage()))
                    report.raged = time.monotonic() - began
                await watch(trouble.catch_up())
                report.phase = "calm"
                await watch(self._calm_down(client, workforce, producer))
                await watch(workforce.dismiss())
                report.phase = "proof"
                await watch(prove(straight, self.books, report, self._place))
            self._tally(proxy)
            if proxy is not None and not proxy.readable:
                report.notes.append("no session was ended by the server: connections are encrypted")

    async def _proxy(self, stack: AsyncExitStack, url: str) -> Proxy | None:
        where = reachable(url) if url.startswith("postgres") else None
        if where is None:
            return None
        proxy = await stack.enter_async_context(Proxy(url, *where))
        try:
            async with self._client(proxy.url):
                return proxy
        except StoreUnreachable:
            return None

    def _note_what_is_left_out(self, url: str, *, proxied: bool, real: bool) -> None:
        note = self.report.notes.append
        if not url.startswith("postgres"):
            note("a SQLite file has no connections to cut and no server to restart")
            return
        if not proxied:
            note("no connection was cut: the URL does not name one host that a proxy can stand in front of")
        if real:
            note("the server was not restarted: the database holds jobs or tables of others")
        elif self._plan.restart is None:
            note("the server was not restarted: nobody said how (--restart-command)")

    # -- phases -----------------------------------------------------------------------------------------------------------

    async def _calm_down(self, client: Client, workforce: Workforce, producer: Producer) -> None:
        """Workers that are left alone finish everything, and what is missing of the jobs that were asked for."""
        plan, report = self._plan, self.report
        deadline = time.monotonic() + plan.patience
        while True:
            workforce.replace_the_dead()
            report.open = len((await client.jobs.list(status=OPEN, limit=1000)).items)
            if report.enqueued < plan.jobs:
                if report.open < OPEN_PER_WORKER * plan.workers:
                    await producer.enqueue(min(OPEN_PER_WORKER, plan.jobs - report.enqueued))
                deadline = time.monotonic() + plan.patience
            elif report.open == 0 or time.monotonic() > deadline:
                return  # those that are stuck are found by the proof
            await asyncio.sleep(0.1)

    async def _look_on(self, client: Client) -> None:
        """Everything must be in order at every moment, not only at the end."""
        while True:
            began = time.monotonic()
            with suppress(StoreUnreachable):  # it is being restarted
                await check(client, self.report, "while workers died: ")
                self.report.done["checks"] += 1
            await asyncio.sleep(max(CHECK_EVERY, 10 * (time.monotonic() - began)))

    async def _tick(self, proxy: Proxy | None) -> None:
        while True:
            self._tally(proxy)
            if self._told is not None:
                self._told(self.report)
            await asyncio.sleep(1)

    def _tally(self, proxy: Proxy | None) -> None:
        if proxy is not None:
            self.report.done["answers lost"] = proxy.answers_lost
