"""`perdure dev`: a store, a worker and a live table of jobs, in one process."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from perdure.cli import job_table as jobtable
from perdure.cli.context import Cli, run_async
from perdure.cli.format import approve_command, one_line
from perdure.cli.options import command, group
from perdure.cli.output import laid_out, safe
from perdure.cli.watch import REFRESH, state_line
from perdure.config import BY_NAME, shown
from perdure.model.approvals import Approval
from perdure.model.jobs import Job
from perdure.model.states import Status
from perdure.operations.approvals import list_approvals
from perdure.operations.database import SchemaFit, database_status, migrate_database
from perdure.operations.enqueue import enqueue_job
from perdure.operations.jobs import list_jobs

if TYPE_CHECKING:
    from perdure import Client, Worker

app = group("One process: a store, a worker and a live table of its jobs.", "perdure dev")


@command(app, "dev", example="perdure dev\nperdure dev --app agents:app")
def dev(
    cli: Cli,
    concurrency: Annotated[
        str | None, typer.Option("--concurrency", metavar="N", help="Jobs at once; default 100")
    ] = None,
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="A,B", help="The queues to serve, '*' for all")
    ] = None,
    no_jobs: Annotated[bool, typer.Option("--no-jobs", help="Do not start the three sample jobs")] = False,
) -> int:
    """Run everything in one process: the database, a worker, and a live table of its jobs. Ctrl-C stops it.

    With --app it runs your handlers. Without, it runs a small App of its own and starts its three jobs: one with steps, one
    that fails and retries, one that asks for your approval.
    """
    cli.more_flags = {"concurrency": concurrency, "queues": queues}
    own = cli.own_app
    if own is None:
        from perdure.cli.dev_app import app as sample

        cli.adopt(sample)
    return run_async(Dev(cli, samples=own is None and not no_jobs).run(), fast=True)


class Dev:
    """The live table and the worker beneath it."""

    def __init__(self, cli: Cli, *, samples: bool) -> None:
        self._cli = cli
        self._samples = samples
        self._signals = 0
        self._seen: dict[UUID, Status] = {}

    async def run(self) -> int:
        """Until a signal; return the exit code."""
        out = self._cli.out
        live = out.tty and out.for_people
        if self._cli.settings["database_url"].startswith("postgres"):
            async with self._cli.unopened() as client:
                found = await database_status(client, with_sizes=False)
                if found.verdict is SchemaFit.MISSING:  # an older schema is upgraded on purpose only
                    await migrate_database(client)
        async with self._cli.client(creates=True, works=not live) as client:
            worker = await self._cli.app.worker()
            self._obey_signals(worker)
            working = asyncio.create_task(worker.run())
            try:
                if self._samples:
                    await self._start_samples(client)
                await (self._live(client, worker, working) if live else self._lines(client, working))
            finally:
                worker.stop()
                await working
        return 0

    def _obey_signals(self, worker: Worker) -> None:
        def on_signal(number: int) -> None:
            self._signals += 1
            if self._signals > 2:
                os._exit(128 + number)
            worker.stop(now=self._signals > 1)

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)

    async def _start_samples(self, client: Client) -> None:
        await enqueue_job(client, "research", "coffee", goal="Three steps and a short sleep")
        await enqueue_job(client, "flaky", goal="Fails twice, then works")
        await enqueue_job(client, "publish", "Coffee is a fruit.", goal="Asks before it publishes")

    async def _lines(self, client: Client, working: asyncio.Task[None]) -> None:
        place = shown(BY_NAME["database_url"], self._cli.settings["database_url"])
        self._cli.out.note(f"{place}; Ctrl-C stops")
        while not working.done():
            for job in reversed((await list_jobs(client, limit=200)).items):
                if self._seen.get(job.id) is not job.status:
                    self._seen[job.id] = job.status
                    print(state_line(job, None, self._cli.out), flush=True)
            await asyncio.wait({working}, timeout=REFRESH)

    async def _live(self, client: Client, worker: Worker, working: asyncio.Task[None]) -> None:
        from rich.live import Live

        console = self._cli.out.console(live=True)
        with Live(console=console, auto_refresh=False, redirect_stdout=False) as view:
            while not working.done():
                height = shutil.get_terminal_size().lines
                jobs = (await list_jobs(client, limit=max(5, height - 8))).items
                approvals = (await list_approvals(client, limit=3)).items
                view.update(safe(self._screen(jobs, approvals, worker)), refresh=True)
                await asyncio.wait({working}, timeout=REFRESH)

    def _screen(self, jobs: tuple[Job, ...], approvals: tuple[Approval, ...], worker: Worker) -> Text:
        out, cli = self._cli.out, self._cli
        place = shown(BY_NAME["database_url"], cli.settings["database_url"])
        stopping = (
            "stopping after the running steps; press Ctrl-C again to stop at once"
            if worker.stopping
            else "Ctrl-C stops"
        )
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append("perdure dev", "bold")
        text.append(f"  {stopping}", "yellow" if worker.stopping else "dim")
        text.append(f"  {worker.busy} running  {place}\n\n", "dim")
        if jobs:
            columns = [c for c in jobtable.columns(out.times, {a.job_id: a for a in approvals}) if not c.wide]
            text.append_text(laid_out([[c.cell(j) for c in columns] for j in jobs], columns, out.width)).append("\n")
        else:
            text.append(f"no jobs yet; in another terminal: {cli.next('jobs start KIND')}\n")
        for approval in approvals:
            text.append(f"\n✋ {one_line(approval.title)}", "magenta")
            text.append(f"  in another terminal: {cli.next(approve_command(approval))}")
        return text
