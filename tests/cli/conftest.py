"""The command line under test: run in this process where that is enough, as a real program where signals and pipes matter."""

import io
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import pytest
import structlog

from perdure.cli.main import run
from perdure.model.ids import uuid7
from perdure.model.jobs import Job
from perdure.model.states import Status

PROGRAM = [sys.executable, "-m", "perdure"]
AGENTS = """
    import asyncio
    import sys
    from pydantic import BaseModel
    from perdure import App, Backoff, Fail, JobContext

    app = App()

    class Brief(BaseModel):
        topic: str
        limit: int = 2

    @app.job
    async def greet(ctx: JobContext, name: str) -> str:
        return await ctx.step("say", "hello {}".format, name)

    @app.job(queue="default", priority=7)
    async def research(ctx: JobContext, brief: Brief) -> dict[str, object]:
        notes = [await ctx.step(f"read {n}", note, brief.topic, n) for n in range(brief.limit)]
        await ctx.progress(0.5, "half way")
        await ctx.checkpoint({"notes": len(notes)})
        await ctx.usage(tokens=120, cost=0.5)
        return {"notes": notes}

    def note(topic: str, number: int) -> str:
        return f"{topic} {number}"

    @app.job(max_retries=1, backoff=Backoff(base=3600, cap=3600, jitter=0))
    async def breaks(ctx: JobContext) -> None:
        raise ValueError("empty source list")

    @app.job(max_retries=0)
    async def dies(ctx: JobContext) -> None:
        raise ValueError("nothing left")

    @app.job
    async def fails(ctx: JobContext) -> None:
        raise Fail("no such account")

    @app.job
    async def asks(ctx: JobContext, draft: str) -> str:
        decision = await ctx.approve("publish", title="Publish this?", payload={"draft": draft}, expires_in="1h")
        return f"published {decision.payload['draft']}"

    @app.job
    async def asks_ann(ctx: JobContext) -> None:
        await ctx.approve("sign", title="Sign here", payload=None, assignees=["ann"])

    @app.job
    async def naps(ctx: JobContext) -> None:
        await ctx.sleep("nap", "1h")

    @app.job
    async def hangs(ctx: JobContext) -> None:
        print("hanging", flush=True)
        await ctx.step("forever", asyncio.sleep, 3600)
"""


@dataclass(frozen=True)
class Done:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its data, printed as JSON."""
        return json.loads(self.out)

    @property
    def only(self) -> Any:
        """The one item of its list, printed as JSON."""
        [item] = self.json["items"]
        return item

    @property
    def lines(self) -> list[str]:
        """Its data, line by line."""
        return self.out.splitlines()


class Perdure:
    """`perdure ...`, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *args: str, stdin: str = "", code: int | None = 0) -> Done:
        """Run one command line; with `code` it must end that way."""
        sys.modules.pop("agents", None)
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        self._capsys.readouterr()
        ended = run(list(args))
        done = Done(ended, *self._capsys.readouterr())
        assert code is None or done.code == code, f"ended with {done.code}\n{done.out}\n{done.err}"
        return done

    def start(self, kind: str, *args: str) -> str:
        """Start a job of `agents:app` and return its id."""
        return self("jobs", "start", kind, "--app", "agents:app", *args, "-o", "id").out.strip()

    def work(self) -> None:
        """Run what is due."""
        self("worker", "start", "--app", "agents:app", "--once", "-q")

    def ran(self, kind: str, *args: str) -> str:
        """A job that has run as far as it goes."""
        id = self.start(kind, *args)
        self.work()
        return id


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory of our own with `agents.py`, and no settings from outside."""
    for name in [n for n in os.environ if n.startswith(("PERDURE_", "_PERDURE"))] + ["NO_COLOR", "FORCE_COLOR", "CI"]:
        monkeypatch.delenv(name, raising=False)
    here = tmp_path / "here"
    here.mkdir()
    (here / "agents.py").write_text(textwrap.dedent(AGENTS))
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield here
    structlog.reset_defaults()
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(here)):
            del sys.modules[name]


@pytest.fixture
def perdure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Perdure:
    """The command line, on ./perdure.db."""
    return Perdure(capsys, monkeypatch)


@pytest.fixture
def anywhere(perdure: Perdure, file_store_url: str, monkeypatch: pytest.MonkeyPatch) -> Perdure:
    """The command line, on SQLite and on PostgreSQL."""
    monkeypatch.setenv("PERDURE_DATABASE_URL", file_store_url)
    return perdure


def a_job(**changes: Any) -> Job:
    """A job record, PENDING and due, with these fields changed."""
    now = datetime.now(UTC)
    fields: dict[str, Any] = {
        **dict.fromkeys(
            ("goal", "payload", "next_retry_at", "deadline", "idempotency_key", "origin_id", "origin_kind")
        ),
        **dict.fromkeys(("result", "error_message", "error_kind", "started_at", "finished_at")),
        **dict.fromkeys(("run_at", "created_at", "updated_at", "due_at"), now),
        **dict.fromkeys(("attempt", "retry_count"), 0),
        "id": uuid7(),
        "tenant_id": "default",
        "kind": "research",
        "queue": "default",
        "status": Status.PENDING,
        "version": 1,
        "priority": 5,
        "max_retries": 3,
        "note": {},
    }
    return Job(**{**fields, **changes})


@contextmanager
def spawned(*args: str, **more: Any) -> Iterator["subprocess.Popen[str]"]:
    """The real program, running; what is left of it at the end is killed."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*PROGRAM, *args], text=True, **{**pipes, **more}) as running:
        try:
            yield running
        finally:
            running.kill()


def line_of(stream: IO[str] | None) -> str:
    """The next line a running program prints."""
    assert stream is not None
    return stream.readline()


def program(*args: str, stdin: str = "", timeout: float = 30) -> Done:
    """Run the real program to its end."""
    ended = subprocess.run([*PROGRAM, *args], input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    return Done(ended.returncode, ended.stdout, ended.stderr)
