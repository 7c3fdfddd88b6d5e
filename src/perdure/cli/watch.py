"""Watching jobs until they are done: a live table on a terminal, else a line per change of state."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from perdure.cli import event_table as eventtable
from perdure.cli import job_table as jobtable
from perdure.cli.errors import ApprovalNeeded, Exit, exit_code
from perdure.cli.format import approving, bare, one_line, short
from perdure.cli.output import Mode, Output, laid_out, status_cell
from perdure.model.errors import JobCancelled, JobFailed, PerdureError, WaitTimeout
from perdure.model.events import Event
from perdure.model.jobs import Job
from perdure.model.states import FAILURES, Status

if TYPE_CHECKING:
    from rich.text import Text

    from perdure.cli.context import Cli
    from perdure.runtime.client.client import Client

REFRESH = 0.25
PATIENCE = 2.0
"""Seconds a job may wait to start before we look whether anybody would start it."""
WORST_FIRST = (Exit.JOB_FAILED, Exit.JOB_CANCELLED, Exit.WAIT_TIMEOUT, Exit.OK)


class Watch:
    """Some jobs, watched together."""

    def __init__(self, client: Client, out: Output, jobs: Sequence[Job], *, timeout: float | None = None) -> None:
        self._client = client
        self._out = out
        self.jobs: dict[UUID, Job] = {j.id: j for j in jobs}
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._timeout = timeout

    async def run(self) -> int:
        """Watch until all are done or the time is up; return the exit code of the worst."""
        timed_out = False
        try:
            async with asyncio.timeout(self._timeout):
                if self._out.tty and self._out.for_people:
                    await self._live()
                else:
                    await self._lines()
        except TimeoutError:
            timed_out = True
        if self._out.mode is Mode.JSON:
            self._out.rows(list(self.jobs.values()), jobtable.columns(self._out.times), id=lambda j: j.id)
        elif self._out.mode is Mode.ID:
            self._out.rows(list(self.jobs.values()), [], id=lambda j: j.id)
        codes = {outcome_code(j) for j in self.jobs.values()}
        if timed_out:
            self._out.warn(f"the time is up; {self._going()} still going")
            codes.add(Exit.WAIT_TIMEOUT)
        return next((c for c in WORST_FIRST if c in codes), Exit.OK)

    def _going(self) -> str:
        number = sum(not j.status.terminal for j in self.jobs.values())
        return "one job is" if number == 1 else f"{number} jobs are"

    async def _refresh(self) -> None:
        for id, job in list(self.jobs.items()):
            if not job.status.terminal:
                self.jobs[id] = await self._client.jobs.get(id)

    @property
    def _done(self) -> bool:
        return all(j.status.terminal for j in self.jobs.values())

    async def _live(self) -> None:
        from rich.live import Live

        with Live(console=self._out.console(live=True), auto_refresh=False, transient=False) as live:
            try:
                while True:
                    await self._refresh()
                    live.update(self._table(), refresh=True)
                    if self._done:
                        return
                    await asyncio.sleep(REFRESH)
            except asyncio.CancelledError:
                live.update(self._table(), refresh=True)
                raise

    def _table(self) -> Text:
        text = table_of(list(self.jobs.values()), self._out)
        text.no_wrap = True
        return text

    async def _lines(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for id in self.jobs:
                    group.create_task(self._follow(id))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None  # one is enough to tell

    async def _follow(self, id: UUID) -> None:
        job = self.jobs[id]
        if job.status.terminal:
            self._tell(job, None)
            return
        async for event in self._client.jobs.watch(id, job.version - 1):
            if event.new_status is not None:
                self.jobs[id] = job = await self._client.jobs.get(id)
                self._tell(job, event)
        self.jobs[id] = await self._client.jobs.get(id)

    def _tell(self, job: Job, event: Event | None) -> None:
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
    last = jobtable.last_word(job, times) if same else eventtable.said(event, times) if event else ""
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
    """One job followed to its end by whoever started it: on stderr, each change of state, or with `steps` every event."""

    def __init__(self, client: Client, cli: Cli, id: UUID, *, steps: bool, stop_on_approval: bool) -> None:
        self._client = client
        self._next = cli.next
        self._out = cli.out
        self._id = id
        self._steps = steps
        self._stop_on_approval = stop_on_approval

    async def run(self, timeout: float | None) -> Job:
        """Return the finished job. Raises JobFailed, JobCancelled, WaitTimeout, ApprovalNeeded; these leave the job alone."""
        looking = asyncio.create_task(self._look_for_a_worker())
        try:
            async with asyncio.timeout(timeout):
                async for event in self._client.jobs.watch(self._id):
                    await self._on(event)
        except TimeoutError:
            job = await self._client.jobs.get(self._id)
            raise WaitTimeout(
                f"job {short(job.id)} {job.kind} is still {job.status} after {timeout:g} s. It is kept, not cancelled",
                hint=f"{self._next(f'jobs explain {bare(job.id)}')}\n{self._next(f'jobs watch {bare(job.id)}')}",
            ) from None
        except asyncio.CancelledError:
            self._out.warn(f"\nthe job goes on: {self._next(f'jobs watch {bare(self._id)}')}")
            raise
        finally:
            looking.cancel()
        job = await self._client.jobs.get(self._id)
        if job.status in FAILURES:
            failed = JobFailed(job)
            more, again = (self._next(f"jobs {verb} {bare(job.id)}") for verb in ("get", "rerun"))
            failed.hint = f"look: {more}\ntry again with the same input: {again}"
            raise failed
        if job.status is Status.CANCELLED:
            raise JobCancelled(job)
        return job

    async def _look_for_a_worker(self) -> None:
        """Say so if the job waits and nobody is there to start it."""
        await asyncio.sleep(PATIENCE)
        with contextlib.suppress(PerdureError):
            job = await self._client.jobs.get(self._id)
            serving = [w for w in await self._client.workers.list() if w.alive and job.queue in w.queues]
            due = job.due_at is not None and job.due_at <= self._out.times.now
            if job.status is Status.PENDING and due and not any(job.kind in w.kinds for w in serving):
                queue = f" --queues {job.queue}" if job.queue != "default" else ""
                why = f"has handler '{job.kind}'" if serving else f"serves queue '{job.queue}'"
                start = self._next(f"worker start --app module:attr{queue}")
                self._out.warn(f"no worker {why}; start one: {start}")

    async def _on(self, event: Event) -> None:
        times = self._out.times
        if self._steps:
            self._out.note(
                f"{eventtable.clock(event, times)}  {event.type:<18}  {eventtable.said(event, times)}".rstrip()
            )
        elif event.new_status is not None:
            said = eventtable.said(event, times)
            self._out.note(f"{eventtable.clock(event, times)}  {status_cell(event.new_status)[0]:<22}  {said}".rstrip())
        if event.new_status is not Status.WAITING_FOR_APPROVAL:
            return
        found = await self._client.approvals.list(job_id=self._id)
        for approval in found.items:
            command = self._next(approving(approval))
            if self._stop_on_approval:
                raise ApprovalNeeded(
                    f"job {short(self._id)} waits for approval {short(approval.id)}: {approval.title}", hint=command
                )
            self._out.warn(f"it asks: {one_line(approval.title)}\n  {command}")
