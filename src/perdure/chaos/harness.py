"""A whole run: set-up, workers and clients, faults, the end of the last jobs, and the checks."""

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

from perdure.chaos.background import in_background
from perdure.chaos.clients import OPEN, Approver, Controller, Producer, Requested, Sender
from perdure.chaos.errors import ChaosFailed
from perdure.chaos.faults import FaultInjector, Restart
from perdure.chaos.handlers import make_app
from perdure.chaos.listener import Caller
from perdure.chaos.messages import Correspondent, stop_schedule, undelivered
from perdure.chaos.proof import check, prove
from perdure.chaos.proxy import Proxy, reachable
from perdure.chaos.report import Report
from perdure.chaos.setup import clear, end_all, prepare
from perdure.chaos.worker_pool import WorkerPool
from perdure.model.errors import PerdureError, StoreUnreachable
from perdure.runtime.client.client import Client

OPEN_PER_WORKER = 12
CHECK_EVERY = 3.0
"""Seconds between two checks of the whole database while faults are injected."""

OnReport = Callable[[Report], None]


@dataclass(frozen=True)
class Plan:
    """What a run does.

    url: the database; None is a temporary SQLite file. jobs: run at least this many, even if that takes longer than
    the kills. deploy_every: seconds in which all workers get the next release of the code, one slot after the other.
    restart: restarts the database, now and then. keep: leave the jobs in the database. directory: where the
    effects and the logs are written, None is a temporary one. finish_timeout: seconds in which the last jobs must end after the
    last kill.
    """

    url: str | None
    kills: int
    seed: int
    workers: int = 4
    jobs: int = 0
    deploy_every: float = 20.0
    keep: bool = False
    allow_real_jobs: bool = False
    restart: Restart | None = None
    directory: Path | None = None
    finish_timeout: float = 120.0


class Chaos:
    """One run of a plan. on_report: called about once a second with the report so far.

    requested: what its clients asked for, and what of it was acknowledged.
    """

    def __init__(self, plan: Plan, *, on_report: OnReport | None = None) -> None:
        self._plan = plan
        self._on_report = on_report
        self.report = Report(plan.seed, f"chaos-{secrets.token_hex(4)}")
        self._directory = Path(tempfile.gettempdir())
        self.requested = Requested()

    async def run(self) -> Report:
        """Do everything; what is wrong is in the report's `faults`.

        Raises RealJobs, ConfigError, ChaosFailed, and what opening the database raises: then nothing was checked. However it
        ends, no process is left. The jobs are deleted at the end unless they are to be kept, or there is a fault.
        """
        began = time.monotonic()
        self._directory = self._make_directory()
        url = self._plan.url or f"sqlite:///{self._directory}/perdure.db"
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
                self.report.place = str(self._directory)
            else:
                shutil.rmtree(self._directory, ignore_errors=True)
        return self.report

    def _make_directory(self) -> Path:
        directory = self._plan.directory
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix="perdure-chaos-", dir=directory)).resolve()
        except OSError as error:
            raise ChaosFailed(f"no directory for the effects and the logs: {error}", hint="name another one") from None

    async def _clean_up(self, url: str) -> bool:
        """After an interruption: delete the jobs, if that is quick."""
        with suppress(PerdureError, TimeoutError):
            async with asyncio.timeout(10), self._client(url) as client:
                await end_all(client)
                await clear(client)
                return True
        return False

    @asynccontextmanager
    async def _client(self, url: str) -> AsyncIterator[Client]:
        app = make_app(url, self.report.tenant, self._directory)
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
            producer, approver, sender = (
                Producer(client, self.requested, report, plan.seed),
                Approver(client, self.requested, report, self._directory),
                Sender(client, report, plan.seed),
            )
            injector = FaultInjector(
                report,
                Controller(client, self.requested, report),
                seed=plan.seed,
                kills=plan.kills,
                url=url,
                proxy=proxy,
                restart=plan.restart if url.startswith("postgres") and not real else None,
            )
            stack.push_async_callback(injector.cancel_restart)
            workers = stack.enter_context(
                WorkerPool(
                    report,
                    seed=plan.seed,
                    slots=plan.workers,
                    kills=plan.kills,
                    url=through,
                    tenant=report.tenant,
                    directory=self._directory,
                    deploy_every=plan.deploy_every,
                )
            )
            self._note_missing_faults(url, proxied=proxy is not None, real=real)
            direct = await stack.enter_async_context(self._client(url))
            began = time.monotonic()
            async with in_background(self._tick(proxy), approver.answer_all(), sender.send_all()) as watch:
                async with in_background(
                    producer.keep(OPEN_PER_WORKER * plan.workers),
                    injector.inject(),
                    Correspondent(client, self.requested, report, plan.seed).write(),
                    Caller(client, self.requested, report, plan.seed).call(),
                    self._check_repeatedly(direct),
                ) as until_failed:
                    report.phase = "faults"
                    await watch(until_failed(workers.run_all()))
                    report.injected_for = time.monotonic() - began
                await watch(injector.finish_restarts())
                report.phase = "finishing"
                await watch(self._finish(client, workers, producer))
                await watch(workers.stop_all())
                report.phase = "proof"
                await watch(prove(direct, self.requested, report, self._directory))
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

    def _note_missing_faults(self, url: str, *, proxied: bool, real: bool) -> None:
        note = self.report.notes.append
        if not url.startswith("postgres"):
            note("a SQLite file has no connections to cut and no server to restart")
            return
        if not proxied:
            note("no connection was cut: the URL does not name one host, so there is no proxy")
        if real:
            note("the server was not restarted: the database holds jobs or tables of others")
        elif self._plan.restart is None:
            note("the server was not restarted: no --restart-command was given")

    # -- phases -----------------------------------------------------------------------------------------------------------

    async def _finish(self, client: Client, workers: WorkerPool, producer: Producer) -> None:
        """Run workers undisturbed until every job has ended, and enqueue what is missing of the jobs asked for."""
        plan, report = self._plan, self.report
        deadline = time.monotonic() + plan.finish_timeout
        await stop_schedule(client, self.requested)
        while True:
            workers.replace_ended()
            report.open = len((await client.jobs.list(status=OPEN, limit=1000)).items)
            if report.enqueued < plan.jobs:
                if report.open < OPEN_PER_WORKER * plan.workers:
                    await producer.enqueue(min(OPEN_PER_WORKER, plan.jobs - report.enqueued))
                deadline = time.monotonic() + plan.finish_timeout
            elif (report.open == 0 and not await undelivered(client)) or time.monotonic() > deadline:
                return  # those that are stuck are found by the checks
            await asyncio.sleep(0.1)

    async def _check_repeatedly(self, client: Client) -> None:
        """Check the whole database again and again, not only at the end."""
        while True:
            began = time.monotonic()
            with suppress(StoreUnreachable):  # it is being restarted
                await check(client, self.report, "while workers were killed: ")
                self.report.done["checks"] += 1
            await asyncio.sleep(max(CHECK_EVERY, 10 * (time.monotonic() - began)))

    async def _tick(self, proxy: Proxy | None) -> None:
        while True:
            self._tally(proxy)
            if self._on_report is not None:
                self._on_report(self.report)
            await asyncio.sleep(1)

    def _tally(self, proxy: Proxy | None) -> None:
        if proxy is not None:
            self.report.done["answers lost"] = proxy.answers_lost
