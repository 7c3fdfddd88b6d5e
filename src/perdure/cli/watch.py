"""Watching jobs until they are done: a live table on a terminal, else a line per change of state."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from perdure.cli import event_table as eventtable
from perdure.cli import job_table as jobtable
from perdure.cli.errors import ApprovalNeeded, Exit, exit_code
from perdure.cli.format import approve_command, bare, one_line, short
from perdure.cli.output import Mode, Output, laid_out, safe, status_cell
from perdure.model.errors import JobCancelled, JobFailed, PerdureError, WaitTimeout
from perdure.model.events import Event
from perdure.model.explanation import Why
from perdure.model.jobs import Job
from perdure.model.states import FAILURES, Status
from perdure.operations.approvals import list_approvals
from perdure.operations.follow import Watched, wait_for_job, watch_jobs
from perdure.operations.jobs import explain_job
from perdure.operations.selection import JobSelection

if TYPE_CHECKING:
    from rich.text import Text

    from perdure import Client
    from perdure.cli.context import Cli

REFRESH = 0.25
WORKER_WAIT = 2.0
"""Seconds a job may wait to start before we look whether there is a worker for it."""
WORST_FIRST = (Exit.JOB_FAILED, Exit.JOB_CANCELLED, Exit.WAIT_TIMEOUT, Exit.OK)


class Watch:
    """Some jobs, watched together."""

    def __init__(self, client: Client, out: Output, *, timeout: float | None = None) -> None:
        self._client = client
        self._out = out
        self._timeout = timeout
        self._jobs: tuple[Job, ...] = ()

    async def run(self, ids: Sequence[str], which: JobSelection) -> int:
        """Watch these jobs, or those that match, until all are done or the time is up; return the exit code of the worst."""
        timed_out, live = False, self._out.tty and self._out.for_people
        seen = watch_jobs(self._client, tuple(ids), which=which, every=REFRESH if live else None)
        try:
            async with asyncio.timeout(self._timeout), contextlib.aclosing(seen):
                await (self._live(seen) if live else self._lines(seen))
        except TimeoutError:
            timed_out = True
        if not self._jobs:
            self._out.rows([], [], id=str)
            self._out.note("nothing to watch: no unfinished job matches")
            return Exit.OK
        if self._out.mode is Mode.JSON:
            self._out.rows(self._jobs, jobtable.columns(self._out.times), id=lambda j: j.id)
        elif self._out.mode is Mode.ID:
            self._out.rows(self._jobs, [], id=lambda j: j.id)
        codes = {outcome_code(j) for j in self._jobs}
        if timed_out:
            self._out.warn(f"the time is up; {self._unfinished()} not finished")
            codes.add(Exit.WAIT_TIMEOUT)
        return next((c for c in WORST_FIRST if c in codes), Exit.OK)

    def _unfinished(self) -> str:
        number = sum(not j.status.terminal for j in self._jobs)
        return "one job is" if number == 1 else f"{number} jobs are"

    async def _live(self, seen: AsyncIterator[Watched]) -> None:
        from rich.live import Live

        with Live(console=self._out.console(live=True), auto_refresh=False, transient=False) as live:
            async for moment in seen:
                self._jobs = moment.jobs
                live.update(safe(self._table()), refresh=True)

    def _table(self) -> Text:
        text = table_of(self._jobs, self._out)
        text.no_wrap = True
        return text

    async def _lines(self, seen: AsyncIterator[Watched]) -> None:
        async for moment in seen:
            self._jobs = moment.jobs
            if moment.changed is not None:
                self._show(moment.jobs[moment.changed], moment.event)
                continue
            for job in moment.jobs:
                if job.status.terminal:
                    self._show(job, None)

    def _show(self, job: Job, event: Event | None) -> None:
        if self._out.mode is Mode.JSONL and event is not None:
            self._out.json_line(eventtable.as_json(event))
        elif self._out.mode is Mode.JSONL:
            self._out.rows([job], [], id=lambda j: j.id)
        elif self._out.for_people:
            print(state_line(job, event, self._out), flush=True)


def table_of(jobs: Sequence[Job], out: Output, *, rows: int | None = None) -> Text:
    """The jobs as a live table, as many as fit on the screen."""
    times = out.times
    columns = [c for c in jobtable.columns(times) if not c.wide]
    shown = list(jobs)[: rows or 200]
    return laid_out([[c.cell(j) for c in columns] for j in shown], columns, out.width)


def state_line(job: Job, event: Event | None, out: Output) -> str:
    """`16:50:31.104  ◐ RUNNING  …43149ff1 research  w-aa795be6f0`: one change of state."""
    status = job.status if event is None or event.new_status is None else event.new_status
    times = out.times
    at = eventtable.clock(event, times) if event is not None else times.show(job.finished_at or job.updated_at)
    word = status_cell(status)[0]
    same = event is None or job.status is status
    last = jobtable.last_word(job, times) if same else eventtable.summary(event, times) if event else ""
    last = last if isinstance(last, str) else last[0]
    return f"{at}  {word:<22}  {short(job.id)} {one_line(job.kind)}  {one_line(last)}".rstrip()


def outcome_code(job: Job) -> int:
    """0 for COMPLETED and for what still goes on, else the code of the error that `result()` would raise."""
    if job.status in FAILURES:
        return exit_code(JobFailed(job))
    if job.status is Status.CANCELLED:
        return exit_code(JobCancelled(job))
    return Exit.OK


class Transcript:
    """One job followed to its end after it was started: on stderr, each change of state, or with `steps` every event."""

    def __init__(self, client: Client, cli: Cli, id: UUID, *, steps: bool, stop_on_approval: bool) -> None:
        self._client = client
        self._next = cli.next
        self._out = cli.out
        self._id = str(id)
        self._steps = steps
        self._stop_on_approval = stop_on_approval

    async def run(self, timeout: float | None) -> Job:
        """Return the finished job. Raises JobFailed, JobCancelled, WaitTimeout, ApprovalNeeded; these leave the job alone."""
        looking = asyncio.create_task(self._look_for_a_worker())
        try:
            return await wait_for_job(self._client, self._id, timeout=timeout, on_event=self._on)
        except WaitTimeout as error:
            error.hint = "\n".join(self._next(f"jobs {verb} {bare(self._id)}") for verb in ("explain", "watch"))
            raise
        except JobFailed as error:
            more, again = (self._next(f"jobs {verb} {bare(self._id)}") for verb in ("get", "rerun"))
            error.hint = f"look: {more}\ntry again with the same input: {again}"
            raise
        except asyncio.CancelledError:
            self._out.warn(f"\nthe job goes on: {self._next(f'jobs watch {bare(self._id)}')}")
            raise
        finally:
            looking.cancel()

    async def _look_for_a_worker(self) -> None:
        """Say so if the job waits and there is no worker to start it."""
        await asyncio.sleep(WORKER_WAIT)
        with contextlib.suppress(PerdureError):
            why = await explain_job(self._client, self._id)
            if why.code in (Why.NO_WORKER, Why.NO_HANDLER):
                [start] = why.moves
                missing = f"serves queue '{why.queue}'" if why.code is Why.NO_WORKER else f"has handler '{why.kind}'"
                command = self._next(start.command.removeprefix("perdure "))
                self._out.warn(f"no worker {missing}; start one: {command}")

    async def _on(self, event: Event) -> None:
        times = self._out.times
        if self._steps:
            self._out.note(
                f"{eventtable.clock(event, times)}  {event.type:<18}  {eventtable.summary(event, times)}".rstrip()
            )
        elif event.new_status is not None:
            text = eventtable.summary(event, times)
            self._out.note(f"{eventtable.clock(event, times)}  {status_cell(event.new_status)[0]:<22}  {text}".rstrip())
        if event.new_status is not Status.WAITING_FOR_APPROVAL:
            return
        found = await list_approvals(self._client, job_id=self._id)
        for approval in found.items:
            command = self._next(approve_command(approval))
            if self._stop_on_approval:
                raise ApprovalNeeded(
                    f"job {short(self._id)} waits for approval {short(approval.id)}: {approval.title}", hint=command
                )
            self._out.warn(f"it asks: {one_line(approval.title)}\n  {command}")
