"""Runs of a real CLI against the API of this machine, and tasks whose runs a test gives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from perdure import App
from perdure.model.tooling import Account, CliRun, RunClass, RunStart, TaskSpec, Usage
from perdure.tools import ADAPTERS, CliSettings, run_cli, task_handler
from tests.tools import clis
from tests.tools.api import Api

KEY = "sk-perdure-test-0123456789"
VARIABLES = {
    "codex": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    "claude": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", ""),
}
MODELS = {"codex": "gpt-5", "claude": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro"}


@pytest.fixture(scope="session")
def api() -> Iterator[Api]:
    with Api() as server:
        yield server


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder with the real CLIs."""
    if clis.npm() is None:
        pytest.skip(clis.NO_NPM)
    return clis.installed()


def account(tool: str, url: str, **changes: Any) -> Account:
    """An account whose key is in a variable of the worker and whose API is at `url`."""
    key, base, suffix = VARIABLES[tool]
    env = {key: "env:TEST_KEY", base: url + suffix}
    return Account(**{"id": f"{tool}-test", "tool": tool, "env": env, **changes})


@dataclass
class Bench:
    """Runs tools in fresh folders. After a run: output (what came, by stream), starts, and how long it took."""

    folder: Path
    settings: CliSettings
    output: dict[str, bytearray] = field(default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()})
    starts: list[RunStart] = field(default_factory=list)
    took: float = 0.0
    adapters: Mapping[str, Any] = field(default_factory=lambda: ADAPTERS)
    on_output: Callable[[bytes], Awaitable[None]] | None = None

    @property
    def workspace(self) -> Path:
        """Where the tool works."""
        return self.folder / "workspace"

    @property
    def home(self) -> Path:
        """Its HOME."""
        return self.folder / "home"

    async def run(self, task: TaskSpec, under: Account, environ: Mapping[str, str] | None = None) -> CliRun:
        """Run it."""

        async def on_output(stream: str, data: bytes) -> None:
            self.output[stream] += data
            if self.on_output is not None:
                await self.on_output(data)

        async def on_start(start: RunStart) -> None:
            self.starts.append(start)

        for path in (self.workspace, self.home):
            path.mkdir(exist_ok=True)
        began = time.monotonic()
        try:
            return await run_cli(
                task,
                under,
                workspace=self.workspace,
                home=self.home,
                settings=self.settings,
                adapters=self.adapters,
                environ={"TEST_KEY": KEY} if environ is None else environ,
                on_output=on_output,
                on_start=on_start,
            )
        finally:
            self.took = time.monotonic() - began


@pytest.fixture
def bench(tmp_path: Path, programs: Path) -> Bench:
    """For real CLIs, which repeat nothing by themselves and wait 5 seconds for their API."""
    return Bench(tmp_path, CliSettings(path=f"{programs}:/usr/bin:/bin", retries=0, idle_timeout=5.0))


def task(tool: str, **changes: Any) -> TaskSpec:
    """A task that is to write results.txt."""
    fields = {
        "prompt": "Write results.txt",
        "model": MODELS.get(tool),
        "output_spec": ("results.txt",),
        "timeout": 60.0,
        "kill_after": 1.0,
    }
    return TaskSpec(**{"tool": tool, **fields, **changes})


GOOD = CliRun(RunClass.OK, exit_code=0, final_text="done", session_id="s-1", usage=Usage(100, 20, 30, Decimal("0.5")))


class Runs:
    """Stands for `run_cli`: gives what a test says, writes files, and remembers under which accounts it was called."""

    def __init__(self) -> None:
        self.ends: list[CliRun] = []
        self.files = {"results.txt": b"42\n"}
        self.accounts: list[str] = []
        self.inputs: dict[str, bytes] = {}
        self.env: Mapping[str, str] = {}
        self.together = self.most_together = 0
        self.metrics = CollectorRegistry()
        self.pause: asyncio.Event | None = None
        self.announced: RunStart | None = None

    async def __call__(
        self, task: TaskSpec, account: Account, *, workspace: Path, on_start: Any, on_output: Any, **_: Any
    ) -> CliRun:
        self.accounts.append(account.id)
        self.env = task.env
        if self.announced is not None:
            await on_start(self.announced)
        self.inputs = {str(p.relative_to(workspace)): p.read_bytes() for p in workspace.rglob("*") if p.is_file()}
        self.together += 1
        self.most_together = max(self.together, self.most_together)
        await on_output("stdout", b"working\n")
        await asyncio.sleep(0.02)
        if self.pause is not None:
            await self.pause.wait()
        self.together -= 1
        for path, content in self.files.items():
            (workspace / path).parent.mkdir(parents=True, exist_ok=True)
            (workspace / path).write_bytes(content)
        return self.ends.pop(0) if self.ends else GOOD


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr(task_handler, "run_cli", runs)
    return runs


@pytest.fixture
async def app(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: Runs) -> AsyncIterator[App]:
    """Serves codex, with an account `a` of four slots; no program is run."""
    monkeypatch.setenv("PERDURE_CLI_WORK_DIR", str(tmp_path / "work"))
    monkeypatch.setenv("PERDURE_CLI_FILES_LIMIT", "16MiB")
    monkeypatch.setenv("PERDURE_CLI_BLOB_DIR", str(tmp_path / "blobs"))
    monkeypatch.setenv("PERDURE_CLI_BACKOFF_BASE", "0")
    (tmp_path / "codex").write_text("#!/bin/sh\n")
    (tmp_path / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    app = App(store_url, migrate=True, metrics=runs.metrics)
    app.serve_tools("codex")
    async with app:
        await app.accounts.add(Account("a", "codex", max_concurrency=4))
        yield app
