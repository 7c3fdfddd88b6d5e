"""`perdure demo`: an agent loses its worker to SIGKILL, continues, asks a person and finishes; then its log is checked.

It runs examples/release_notes.py on a real git repository: an embedded store, worker processes of their own, a crash in the
middle. The example leaves a line in a file whenever the body of a step really runs; compared with the job's log, those lines
show what ran how often.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import perdure
from perdure import App
from perdure.cli.demo_view import View
from perdure.cli.demo_workers import DemoWorkers
from perdure.cli.errors import DemoFailed, format_error
from perdure.config import load_settings
from perdure.model.errors import Fail, PerdureError
from perdure.model.events import Event

LEASE = 3
PACE = 0.25
COMMITS = 24
FEW = 5
"""The repository of the current directory is used if it has at least so many commits; else a sample."""
TIME_LIMIT = 120
DRAFT_LINES = 24
NOTES_LINES = 8


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a demo: everything that it writes is in `directory`."""

    directory: Path
    repository: str
    sample: bool
    example: Any

    @property
    def url(self) -> str:
        """The store."""
        return f"sqlite:///{self.directory / 'perdure.db'}"

    @property
    def executions(self) -> Path:
        """One line per real execution of a step."""
        return self.directory / "executions.log"

    @property
    def notes(self) -> Path:
        """What the agent writes."""
        return self.directory / "RELEASE_NOTES.md"


def run_demo(repository: str | None, *, directory: str | None, auto_approve: bool) -> int:
    """Run the demo; return 0 if all checks passed, 1 if not, 130 if it was interrupted.

    repository: None takes the current directory's, or makes a sample. directory: where to keep what it writes, default a new
    temporary one. auto_approve: do not ask.
    """
    view = View()
    try:
        files = _set_up(repository, directory)
        return asyncio.run(_run(files, view, asking=not auto_approve and attended()))
    except PerdureError as error:
        view.close()
        print(format_error(error.message, error.hint, error.code), file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        view.close()
        print("\nstopped; its workers are stopped too", file=sys.stderr)
        return 130


def attended() -> bool:
    """True where a person can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not os.environ.get("CI")


# -- the files ------------------------------------------------------------------------------------------------------------


def _set_up(repository: str | None, directory: str | None) -> Files:
    if shutil.which("git") is None:
        raise DemoFailed("the demo reads a git repository, and git is not installed")
    example = _load_example("release_notes")
    if repository is not None:
        try:
            example.find_range(str(Path(repository).resolve()), COMMITS)
        except (Fail, RuntimeError) as error:
            raise DemoFailed(str(error)) from None
    try:
        if directory is not None:
            Path(directory).mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="perdure-demo-", dir=directory)).resolve()
    except OSError as error:
        raise DemoFailed(f"no directory for the demo's files: {error}", hint="name another directory") from None
    sample = repository is None and _commits_here(example) < FEW
    if sample:
        repository = str(made / "teapot")
        try:
            _load_example("teapot").make(Path(repository))
        except RuntimeError as error:
            raise DemoFailed(str(error)) from None
    return Files(made, str(Path(repository or ".").resolve()), sample, example)


def _load_example(name: str) -> Any:
    """An example as a module: they are part of the wheel, and are next to src/ in a checkout."""
    package = Path(perdure.__file__).parent
    for place in (package / "examples", package.parents[1] / "examples"):
        file = place / f"{name}.py"
        if file.is_file():
            spec = importlib.util.spec_from_file_location(name, file)
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise DemoFailed(f"the example {name}.py is not where it was installed")


def _commits_here(example: Any) -> int:
    try:
        return len(example.find_range(str(Path.cwd()), COMMITS).commits)
    except (Fail, RuntimeError):
        return 0


# -- the run -------------------------------------------------------------------------------------------------------------


async def _run(files: Files, view: View, *, asking: bool) -> int:
    app: App = files.example.app
    app.configure(load_settings({"database_url": files.url}, environ={}, directory=files.directory))
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    run = Run(files, view, app, asking=asking)
    try:
        async with app, asyncio.timeout(None if asking else TIME_LIMIT):
            return await run.run()
    except TimeoutError:
        raise DemoFailed(
            f"the demo was not finished within {TIME_LIMIT} s; the workers' logs are in {files.directory}"
        ) from None
    finally:
        run.stop_workers()


class Run:
    """One run: the job, its workers, and what was seen of them."""

    def __init__(self, files: Files, view: View, app: App, *, asking: bool) -> None:
        self._files = files
        self._view = view
        self._client = app.acting(via="demo")
        self._asking = asking
        settings = {"database_url": files.url, "app": "release_notes:app", "lease": f"{LEASE}s", "tenant": "default"}
        settings |= {"queues": "default", "concurrency": "4", "log_format": "text", "log_level": "info"}
        environment = {"RELEASE_NOTES_WITNESS": str(files.executions), "RELEASE_NOTES_PACE": str(PACE)}
        paths = [Path(files.example.__file__).parent]
        self._workers = DemoWorkers(files.directory, view, settings, environment, paths)
        self._job = UUID(int=0)
        self._approval = ""
        self._total = 0
        self._recorded: list[str] = []
        self._killed_at: float | None = None
        self._taken_over = False
        self._safe: set[str] = set()
        """What was recorded when the worker was killed: must never run again."""

    async def run(self) -> int:
        """From the enqueue to the proof."""
        files, view = self._files, self._view
        view.say(f"An agent writes release notes for {files.repository}", "bold")
        if files.sample:
            view.say(f"  this is no repository with {FEW} commits or more, so a sample was made; or: perdure demo REPO")
        view.say(f"  store  {files.url}")
        view.say(f"  lease  {LEASE} s, so that you do not wait long for the takeover; the default is 30 s")
        brief = files.example.Brief(files.repository, str(files.notes), COMMITS)
        handle = await self._client.enqueue(files.example.release_notes, brief, goal="release notes, as a demo")
        self._job = handle.id
        job = await handle.get()
        view.say(f"\njob …{job.short_id} is enqueued: it is in the file now and cannot be lost")
        self._start_worker()
        async with contextlib.aclosing(self._events()) as events:
            async for event in events:
                await self._see(event)
        job = await handle.get()
        if job.status != "COMPLETED":
            raise DemoFailed(f"the job is {job.status}: {job.error_message or job.note.get('reason')}")
        self.stop_workers()
        view.close()
        view.say(f"\nThe agent wrote {files.notes}:", "bold")
        view.page(files.notes.read_text(encoding="utf-8"), NOTES_LINES)
        good = self._check(await handle.events())
        self._show_commands(job.short_id)
        return 0 if good else 1

    async def _events(self) -> AsyncGenerator[Event, None]:
        """The job's log as it grows; raises DemoFailed if the worker dies of anything but our kill."""
        events = self._client.jobs.watch(self._job)
        coming = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                await asyncio.wait({coming}, timeout=0.5)
                if coming.done():
                    event = coming.result()
                    if event is None:
                        return
                    yield event
                    coming = asyncio.ensure_future(anext(events, None))
                else:
                    self._workers.check()
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    async def _see(self, event: Event) -> None:
        view = self._view
        match event.type:
            case "run_started":
                view.say(f"attempt {event.attempt} on worker {event.payload['worker']}", "cyan")
            case "node_finished" | "tool_returned":
                self._step(event)
            case "job_retrying" if self._killed_at is not None and event.payload.get("reason") == "lease_expired":
                self._taken_over = True
                waited = time.monotonic() - self._killed_at
                view.say(f"the lease ran out {waited:.1f} s after the kill: another worker takes the job over", "cyan")
            case "job_waiting_for_approval":
                await self._decide()
            case "job_completed":
                view.say("job COMPLETED", "bold green")
            case _:
                pass
        if event.type == "node_finished" and self._killed_at is None and len(self._recorded) * 2 >= self._total:
            self._kill()
            self._start_worker()

    def _step(self, event: Event) -> None:
        key, result = event.payload["key"], event.payload["result"]
        self._recorded.append(key)
        if key == "range":
            self._total = len(result["commits"]) + 4  # range, group, draft, write
            self._view.expect(self._total)
        about = result["subject"] if key.startswith("read[") else {"range": f"{self._total - 4} commits"}.get(key, "")
        self._view.step(len(self._recorded), f"{key:<17} {about}")

    async def _decide(self) -> None:
        view = self._view
        approval = (await self._client.approvals.list(job_id=self._job)).items[0]
        self._approval = approval.short_id
        view.say("\nThe draft:")
        view.page(approval.payload["text"], None if self._asking else DRAFT_LINES)
        view.say(
            f"\nThe job waits for a person, and no worker holds it meanwhile: …{approval.short_id} {approval.title}",
            "bold",
        )
        if not self._asking:
            view.say("no terminal, CI or --yes: the demo approves without asking")
        elif not await view.ask("Approve? [Y/n] "):
            await self._client.deny(approval.id, comment="denied in the demo")
            raise DemoFailed("you denied it: the job is FAILED, as it asked for, and nothing was written")
        await self._client.approve(approval.id, comment="approved in the demo")

    def _start_worker(self) -> None:
        self._workers.start("perdure worker start --app release_notes:app")

    def _kill(self) -> None:
        pid = self._workers.kill()
        self._killed_at = time.monotonic()
        self._safe = set(self._recorded)
        of = f"{len(self._recorded)} of {self._total} steps recorded"
        self._view.say(f"\nkill -9 {pid}, with {of}", "bold red")

    def stop_workers(self) -> None:
        """Gracefully, then not."""
        self._workers.stop()

    # -- the checks ---------------------------------------------------------------------------------------------------------

    def _check(self, events: list[Event]) -> bool:
        """Compare the lines that the steps wrote with the log; print and return whether everything is as promised."""
        kinds = {"node_finished": "step", "tool_returned": "tool"}
        calls = [(kinds[e.type], e.payload["key"]) for e in events if e.type in kinds]
        keys = [key for _, key in calls]
        name_of = {hashlib.sha256(f"{self._job}:{kind}:{key}".encode()).hexdigest()[:32]: key for kind, key in calls}
        lines = self._files.executions.read_text(encoding="utf-8").splitlines()
        ran = Counter(name_of.get(line.split()[0], line) for line in lines)
        cut_off = sum(count - 1 for key, count in ran.items() if key not in self._safe)
        again = sum(ran[key] - 1 for key in self._safe)
        scope = next(e.payload["result"] for e in events if e.type == "node_finished" and e.payload["key"] == "range")
        text = self._files.notes.read_text(encoding="utf-8")
        found = sum(f"({commit[:10]})" in text for commit in scope["commits"])
        self._view.say("\nWhat the job's log and the lines that the steps wrote when they ran show:", "bold")
        ran_text = f"{len(lines)} executions of {len(ran)} steps"
        if cut_off:
            ran_text += f": {cut_off} was cut off by the kill before it was recorded, and ran again"
        checks = [
            (
                self._workers.started[0].returncode == -signal.SIGKILL and self._taken_over,
                "1 worker killed, its job taken over",
            ),
            (len(keys) == len(set(keys)) == self._total, f"{len(keys)} of {self._total} steps recorded, each once"),
            (set(ran) == set(keys) and cut_off <= 1, ran_text),
            (
                bool(self._safe) and again == 0,
                f"{len(self._safe)} steps recorded before the kill, {again} of them ran again",
            ),
            (found == len(scope["commits"]), f"{found} of {len(scope['commits'])} commits are in the notes"),
            ([e.version for e in events] == list(range(1, len(events) + 1)), f"{len(events)} events, no gap"),
        ]
        for good, what in checks:
            self._view.say(f"  {'ok    ' if good else 'FAILED'} {what}", "green" if good else "bold red")
        return all(good for good, _ in checks)

    def _show_commands(self, short_id: str) -> None:
        db = f"--db {shlex.quote(self._files.url)}"
        say = self._view.say
        say("\nMore commands:", "bold")
        looks = (f"jobs get {short_id}", f"jobs events {short_id}", f"jobs steps {short_id}")
        for command in (*looks, f"approvals get {self._approval}"):
            say(f"  {program_name()} {command} {db}")
        say(f"\nEverything it wrote is in {self._files.directory}; delete it when you are done.")


def program_name() -> str:
    """How this shell calls us: by name, or by path where the virtual environment is not active (make demo)."""
    program, here = Path(sys.argv[0]), Path.cwd()
    if shutil.which("perdure") or program.name != "perdure":
        return "perdure"
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))
