"""`perdure demo --tool`: the tour of `perdure demo` with a real coding CLI, which drafts the release notes.

Its worker is killed while the CLI runs. Nothing of the CLI is left, another worker takes the task over, and a person approves
what it wrote.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from perdure import Account, Client, Job
from perdure.cli.demo import attended, program_name
from perdure.cli.demo_agent import NOTES, Brief, app, cli_notes
from perdure.cli.demo_view import View
from perdure.cli.demo_workers import DemoWorkers
from perdure.cli.errors import DemoFailed, format_error
from perdure.config import load_settings
from perdure.model.errors import PerdureError
from perdure.model.task_payload import KIND_PREFIX
from perdure.tools import ADAPTERS

LEASE = 3
COMMITS = 24
TIME_LIMIT = 900


@dataclass(frozen=True, slots=True)
class Login:
    """Where a tool has its key: one of these variables, or its own file below HOME. url: the variable of another address."""

    keys: tuple[str, ...]
    url: str
    home: str


LOGINS: Mapping[str, Login] = {
    "codex": Login(("CODEX_API_KEY", "OPENAI_API_KEY"), "OPENAI_BASE_URL", "CODEX_HOME"),
    "claude": Login(
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        "ANTHROPIC_BASE_URL",
        "CLAUDE_CONFIG_DIR",
    ),
    "gemini": Login(("GEMINI_API_KEY", "GOOGLE_API_KEY"), "GOOGLE_GEMINI_BASE_URL", "GEMINI_CLI_HOME"),
}


def run_tool_demo(tool: str, repository: str | None, *, directory: str | None, auto_approve: bool) -> int:
    """Run it; return 0 if all checks passed, 1 if not or if something is missing, 130 if it was interrupted. tool: `auto` is the
    first that is installed and has a key."""
    view = View()
    try:
        account = account_of(tool)
        commits = _commits(repository)
        try:
            made = Path(tempfile.mkdtemp(prefix="perdure-demo-", dir=directory)).resolve()
        except OSError as error:
            raise DemoFailed(f"no directory for the demo's files: {error}", hint="name another directory") from None
        return asyncio.run(_run(made, account, commits, view, asking=not auto_approve and attended()))
    except PerdureError as error:
        view.close()
        print(format_error(error.message, error.hint, error.code), file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        view.close()
        print("\nstopped; its workers are stopped too", file=sys.stderr)
        return 130


def account_of(tool: str) -> Account:
    """An account with the key that this machine has for the tool. Raises DemoFailed saying plainly what is missing."""
    if tool != "auto" and tool not in LOGINS:
        raise DemoFailed(f"the demo knows no tool '{tool}'", hint=f"one of {', '.join(LOGINS)}, or auto")
    lacking = []
    for name in LOGINS if tool == "auto" else (tool,):
        found, why = _account(name)
        if found is not None:
            return found
        lacking.append(f"{name}: {why}")
    raise DemoFailed(
        "no coding CLI can be run here. " + "; ".join(lacking), hint="without a CLI and without a key: perdure demo"
    )


def _account(tool: str) -> tuple[Account | None, str]:
    adapter, login = ADAPTERS[tool], LOGINS[tool]
    if shutil.which(adapter.program) is None:
        return None, f"{adapter.program} is not installed (install it: {adapter.install})"
    env = {login.url: os.environ[login.url]} if os.environ.get(login.url) else {}
    key = next((name for name in login.keys if os.environ.get(name)), None)
    if key is not None:
        return Account("demo", tool, env={**env, key: f"env:{key}"}), ""
    folder, name = Path(adapter.credential).parent, Path(adapter.credential).name
    places = [Path(os.environ[login.home], name)] if os.environ.get(login.home) else []
    places.append(Path.home() / folder / name)
    file = next((place for place in places if place.is_file()), None)
    if file is not None:
        return Account("demo", tool, env=env, cred_ref=str(file.resolve())), ""
    return None, f"it has no key: {' and '.join(login.keys)} are not set, and there is no {places[-1]}"


def _commits(repository: str | None) -> str:
    try:
        ended = subprocess.run(
            ["git", "-C", repository or ".", "log", f"-{COMMITS}", "--format=%h %s"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        raise DemoFailed("the demo reads a git repository, and git is not installed") from None
    if ended.returncode or not ended.stdout.strip():
        raise DemoFailed(
            f"{repository or 'this directory'} is not a git repository with commits",
            hint="name one: perdure demo REPO --tool ...",
        )
    return ended.stdout


async def _run(directory: Path, account: Account, commits: str, view: View, *, asking: bool) -> int:
    url = f"sqlite:///{directory / 'perdure.db'}"
    app.configure(load_settings({"database_url": url}, environ={}, directory=directory))
    settings = {"database_url": url, "app": "perdure.cli.demo_agent:app", "lease": f"{LEASE}s", "tools": account.tool}
    settings |= {"tenant": "default", "queues": "default", "log_format": "text", "log_level": "info"}
    settings["cli_work_dir"] = str(directory / "work")
    workers = DemoWorkers(directory, view, settings, {})
    try:
        async with app, asyncio.timeout(TIME_LIMIT):
            await app.accounts.add(account)
            return await Tour(directory, app.acting(via="demo"), account, workers, view, asking=asking).run(commits)
    except TimeoutError:
        raise DemoFailed(
            f"the demo was not finished within {TIME_LIMIT} s; the workers' logs are in {directory}"
        ) from None
    finally:
        workers.stop()


class Tour:
    """One run: the agent's job, its task, and the workers that run both."""

    def __init__(
        self, directory: Path, client: Client, account: Account, workers: DemoWorkers, view: View, *, asking: bool
    ) -> None:
        self._directory = directory
        self._client = client
        self._account = account
        self._workers = workers
        self._view = view
        self._asking = asking
        self._left: int | None = None

    async def run(self, commits: str) -> int:
        """From the enqueue to the checks."""
        view, tool, output = self._view, self._account.tool, self._directory / NOTES
        view.say(f"An agent has {tool} draft release notes for {len(commits.splitlines())} commits", "bold")
        view.say(f"  it uses a few thousand tokens of {next(iter(self._account.env), self._account.cred_ref)}")
        handle = await self._client.enqueue(
            cli_notes, Brief(tool, commits, str(output)), goal="release notes, as a demo"
        )
        self._start()
        task = await self._task(handle.id)
        await self._killed_while_it_runs(task)
        job = await self._decided(handle.id)
        if job.status != "COMPLETED":
            raise DemoFailed(
                f"the job is {job.status}: {job.error_message}; the workers' logs are in {self._directory}"
            )
        view.say(f"\nThe agent wrote {output}:", "bold")
        view.page(output.read_text(encoding="utf-8"), 8)
        good = await self._check(handle.id, task)
        name, db = program_name(), f"--db {shlex.quote(f'sqlite:///{self._directory}/perdure.db')}"
        view.say("\nMore commands:", "bold")
        for command in (f"tasks get {str(task)[-8:]}", f"tasks logs {str(task)[-8:]}", f"jobs events {job.short_id}"):
            view.say(f"  {name} {command} {db}")
        return 0 if good else 1

    def _start(self) -> None:
        self._workers.start(f"perdure worker start --app perdure.cli.demo_agent:app --tools {self._account.tool}")

    async def _task(self, job_id: UUID) -> UUID:
        """The child that the agent spawned."""
        while True:
            self._workers.check()
            found = await self._client.jobs.list(kind=KIND_PREFIX + self._account.tool)
            if found.items:
                return found.items[0].id
            if (await self._client.jobs.get(job_id)).status.terminal:
                raise DemoFailed("the agent ended without a task")
            await asyncio.sleep(0.1)

    async def _killed_while_it_runs(self, task: UUID) -> None:
        async for event in self._client.jobs.watch(task):
            if event.type == "tool_run_started":
                break
        await asyncio.sleep(0.1)
        pid = self._workers.kill()
        self._view.say(f"\nkill -9 {pid}, while {self._account.tool} runs", "bold red")
        for _ in range(100):
            self._left = _processes_in(self._directory)
            if self._left == 0:
                break
            await asyncio.sleep(0.1)
        self._start()

    async def _decided(self, job_id: UUID) -> Job:
        """The job at its end; its approval is decided on the way."""
        while True:
            job = await self._client.jobs.get(job_id)
            if job.status.terminal:
                return job
            self._workers.check()
            if asks := (await self._client.approvals.list(job_id=job_id)).items:
                self._view.say("\nThe draft:")
                self._view.page(asks[0].payload["text"], None if self._asking else 24)
                if not self._asking:
                    self._view.say("no terminal, CI or --yes: the demo approves without asking")
                elif not await self._view.ask("Approve? [Y/n] "):
                    await self._client.deny(asks[0].id, comment="denied in the demo")
                    raise DemoFailed("you denied it: the job is FAILED, as it asked for, and nothing was written")
                await self._client.approve(asks[0].id, comment="approved in the demo")
            await asyncio.sleep(0.2)

    async def _check(self, job_id: UUID, task: UUID) -> bool:
        runs, claims = await self._client.tasks.runs(task), (await self._client.jobs.get(task)).attempt
        events = await self._client.jobs.events(job_id)
        calls = [event.payload["key"] for event in events if event.type in ("node_finished", "tool_returned")]
        tokens = sum(run.run.usage.tokens for run in runs)
        checks = [
            (self._left == 0, "no process of the killed run was left"),
            (claims >= 2, f"the task was claimed {claims} times: another worker took it over"),
            (len(runs) == 1 and runs[0].run.ok, f"{len(runs)} run recorded, with {tokens:,} tokens"),
            (sorted(calls) == ["read", "write"], "the agent's steps are recorded, each once"),
        ]
        self._view.say("\nWhat the logs of the job and of its task show:", "bold")
        for good, what in checks:
            self._view.say(f"  {'ok    ' if good else 'FAILED'} {what}", "green" if good else "bold red")
        return all(good for good, _ in checks)


def _processes_in(directory: Path) -> int:
    """How many processes work below a folder; 0 where the system does not say."""
    count = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            count += str((entry / "cwd").readlink()).startswith(str(directory / "work"))
        except OSError:
            continue
    return count
