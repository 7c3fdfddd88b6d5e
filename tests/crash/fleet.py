"""Tasks while their workers and launchers are killed: a tool whose runs are hard to end, the processes that are killed, and what
must hold meanwhile and afterwards."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import textwrap
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from perdure import Account, App, Status, TaskSpec
from perdure.chaos.fork_server import Say
from perdure.chaos.processes import Child, ForkServer
from perdure.config import load_settings
from perdure.event_loop import run
from perdure.tools.leftovers import MARK
from tests.crash.invariants import check
from tests.crash.processes import ROOT

TOOL = "stubborn"
SLOTS = 5
"""Of the account."""
CONCURRENCY = 4
"""Tasks of one worker: two workers want more slots than there are."""
LEASE = 1.0
WORKERS = 2
OPEN = 12
"""Unfinished tasks that there are while workers are killed."""
PATIENCE = 60.0

PROGRAM = '''
    """A run: it ignores TERM, starts children that leave its session, prints and writes until its time is over. The lock on a
    file of its task is held as long as any process of the run lives."""
    import fcntl, os, signal, subprocess, sys, time
    if sys.argv[1:] == ["--version"]:
        print("1.0.0")
        sys.exit()
    folder, name, seconds = sys.stdin.read().split()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    lock = os.open(f"{folder}/{name}.lock", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(lock, True)
    log = os.open(f"{folder}/effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(log, f"{name} doubled\\n".encode())
    os.write(log, f"{name} began\\n".encode())
    subprocess.Popen(["sleep", "300"], close_fds=False)
    subprocess.Popen(["setsid", "sh", "-c", "setsid sleep 301 & sleep 302"], close_fds=False)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(300)
        os._exit(0)
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        print("working", flush=True)
        time.sleep(0.02)
    with open("out.txt", "w") as file:
        file.write(name)
    print(name, flush=True)
    os.write(log, f"{name} ended\\n".encode())
'''


@dataclass(frozen=True)
class Setting:
    """Where everything is. codex: the folder of the real codex, and the URL of its API; empty = not part of it."""

    url: str
    place: str
    codex: str = ""
    api: str = ""

    @property
    def work_dir(self) -> Path:
        """Where the workspaces are."""
        return Path(self.place) / "work"

    def app(self) -> App:
        """The App of every process."""
        if self.codex and self.codex not in os.environ["PATH"]:
            os.environ["PATH"] = f"{self.codex}:{os.environ['PATH']}"
        program = Path(self.place) / "stubborn"
        tool = {"program": str(program), "args": []}
        own = {
            "database_url": self.url,
            "cli_work_dir": str(self.work_dir),
            "cli_backoff_base": 0,
            "cli_max_attempts": 101,
            "cli_sandbox": "L0",
            "cli_tools": {TOOL: tool},
        }
        app = App(settings=load_settings(own, environ={}, directory=Path(self.place)), migrate=True)
        app.serve_tools(TOOL, *(["codex"] if self.codex else []))
        return app

    def prepare(self) -> None:
        """Write the program."""
        Path(self.place).mkdir(parents=True, exist_ok=True)
        program = Path(self.place) / "stubborn"
        program.write_text(f"#!{Path(sys.executable).resolve()} -IS\n{textwrap.dedent(PROGRAM)}")
        program.chmod(0o755)


def work(text: str, say: Say) -> None:
    """A worker, until it is stopped or killed: the entry of a child."""
    del say
    setting = Setting(**json.loads(text))

    async def main() -> None:
        async with setting.app() as app:
            await app.work(concurrency=CONCURRENCY, lease=LEASE, chores=0.2)

    run(main())


@dataclass
class Result:
    """What was done and what is wrong."""

    kills: int = 0
    launcher_kills: int = 0
    tasks: int = 0
    runs: int = 0
    most_runs: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills} workers killed while runs were going, {self.launcher_kills} launchers; {self.tasks} tasks, "
            f"{self.runs} runs, at most {self.most_runs} at once; {len(self.faults)} faults"
        )


class Fleet:
    """One run of it over one database."""

    def __init__(self, setting: Setting, kills: int, seed: int) -> None:
        self._setting = setting
        self._kills = kills
        self._rng = random.Random(seed)
        self._tasks: dict[UUID, str] = {}
        self._numbers = itertools.count()
        self.result = Result()

    async def run(self) -> Result:
        """Kill, let the last tasks end, and look at everything."""
        self._setting.prepare()
        async with self._setting.app() as app:
            await app.accounts.add(Account("a", TOOL, max_concurrency=SLOTS))
            if self._setting.codex:
                env = {"OPENAI_API_KEY": "env:FLEET_KEY", "OPENAI_BASE_URL": self._setting.api}
                await app.accounts.add(Account("c", "codex", env=env, max_concurrency=1))
            with ForkServer("tests.crash.fleet:work", paths=(str(ROOT),)) as server:
                looking = asyncio.create_task(self._look_on(app))
                try:
                    await asyncio.gather(*(self._slot(app, server, n) for n in range(WORKERS)))
                    last = self._start(server, 99)
                    await self._until_all_ended(app)
                    last.signal(signal.SIGTERM)
                    await until(lambda: last.exit_code is not None, "the end of the last worker")
                finally:
                    looking.cancel()
                    with suppress(asyncio.CancelledError):
                        await looking
            await self._prove(app)
        return self.result

    def _start(self, server: ForkServer, number: int) -> Child:
        log = Path(self._setting.place) / f"worker-{number}.log"
        log.touch()
        return server.start(log, json.dumps(self._setting.__dict__))

    async def _slot(self, app: App, server: ForkServer, number: int) -> None:
        """One worker after the other, each killed while runs of it are going; now and then a launcher with it, or alone."""
        while self.result.kills < self._kills:
            await self._enqueue(app)
            worker = self._start(server, number)
            pid = worker.pid
            await until(lambda pid=pid, worker=worker: launchers_of(pid) or worker.exit_code is not None, "a run")
            await asyncio.sleep(self._rng.choice((0.0, 0.05, 0.2, 0.5)) * self._rng.random())
            what = self._rng.choice(("worker", "worker", "worker", "both", "launcher"))
            launchers = launchers_of(pid)
            if what == "launcher" and launchers:
                kill(launchers[0])
                self.result.launcher_kills += 1
                await asyncio.sleep(0.3 * self._rng.random())
                launchers = launchers_of(pid)
            worker.signal(signal.SIGKILL)
            if what == "both":
                for launcher in launchers:
                    kill(launcher)
                self.result.launcher_kills += len(launchers)
            self.result.kills += bool(launchers)
            await until(lambda worker=worker: worker.exit_code is not None, "the end of a worker")

    async def _enqueue(self, app: App) -> None:
        """So many tasks that no worker is idle."""
        open_now = await app.jobs.count(status=[status for status in Status if not status.terminal])
        for _ in range(sum(open_now.values()), OPEN):
            name = f"task-{next(self._numbers)}"
            seconds = self._rng.choice((0.0, 0.1, 0.3, 0.8))
            if self._setting.codex and self._rng.random() < 0.1:
                task = TaskSpec("codex", "Write results.txt", model="gpt-5", output_spec=("results.txt",))
            else:
                task = TaskSpec(TOOL, f"{self._setting.place} {name} {seconds}", output_spec=("out.txt",))
            handle = await app.tasks.enqueue(task, idempotency_key=name)
            self._tasks[handle.id] = name if task.tool == TOOL else ""

    async def _look_on(self, app: App) -> None:
        """Never more runs than slots, and never more slots in use than there are."""
        while True:
            accounts = await app.accounts.list()
            runs, slots = (
                len(set(marks(self._setting.work_dir).values())),
                sum(i.account.max_concurrency for i in accounts),
            )
            self.result.most_runs = max(self.result.most_runs, runs)
            if runs > slots:
                self.result.faults.append(f"{runs} runs with {slots} slots")
            for info in accounts:
                if info.used > info.account.max_concurrency:
                    self.result.faults.append(f"account {info.account.id}: {info.used} slots in use")
            await asyncio.sleep(0.1)

    async def _until_all_ended(self, app: App) -> None:
        deadline = time.monotonic() + PATIENCE + self._kills
        while time.monotonic() < deadline:
            counts = await app.jobs.count(status=[status for status in Status if not status.terminal])
            if not sum(counts.values()):
                return
            await asyncio.sleep(0.1)

    async def _prove(self, app: App) -> None:
        fault = self.result.faults.append
        self.result.tasks = len(self._tasks)
        for id, name in self._tasks.items():
            job, runs = await app.jobs.get(id), await app.tasks.runs(id)
            self.result.runs += len(runs)
            if job.status is not Status.COMPLETED:
                fault(f"{name or 'codex'} ended {job.status}: {job.error_message}")
                continue
            good = [r for r in runs if r.run.ok]
            if len(good) != 1 or runs[-1] is not good[0]:
                fault(
                    f"{name or 'codex'} has the runs {[(r.attempt, r.run.outcome.value, r.run.detail) for r in runs]}"
                )
            if name and await app.tasks.read_file(id, "out.txt") != name.encode():
                fault(f"{name} has another file")
        for info in await app.accounts.list():
            if info.used or not info.account.enabled:
                fault(f"account {info.account.id}: {info.used} slots in use, enabled: {info.account.enabled}")
        effects = (Path(self._setting.place) / "effects").read_text().split("\n")
        self.result.faults += [line for line in effects if line.endswith("doubled")]
        if left := marks(self._setting.work_dir):
            fault(f"processes are left: {left}")
            for pid in left:
                kill(pid)
        if left_behind := sorted(path.name for path in self._setting.work_dir.glob("*.run")):
            fault(f"workspaces are left: {left_behind}")
        try:
            await check(self._setting.url, self._tasks, at_rest=True)
        except AssertionError as error:
            fault(str(error))


def marks(work_dir: Path) -> dict[int, str]:
    """Every process of a run below this folder, with the mark of its run."""
    found = {}
    wanted = f"{MARK}={work_dir.resolve()}/".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                for word in (folder / "environ").read_bytes().split(b"\0"):
                    if word.startswith(wanted):
                        found[int(folder.name)] = word.decode()
    return found


def launchers_of(pid: int) -> list[int]:
    """The launchers of a worker that have started a program."""
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                with suppress(OSError):
                    is_launcher = b"launcher.py" in Path(f"/proc/{child}/cmdline").read_bytes()
                    if is_launcher and Path(f"/proc/{child}/task/{child}/children").read_text().strip():
                        found.append(child)
    return found


def kill(pid: int) -> None:
    """SIGKILL, if it still lives."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def until(condition: Any, what: str) -> None:
    """Poll until it is true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE:g} s for {what}")
        await asyncio.sleep(0.01)
