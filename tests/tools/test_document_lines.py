"""The command lines of the design document of the scheduler, exactly as the document has them. `<id>` and `N` stand for values
there, and `enable/disable` for two lines. What the document lets the scheduler execute comes last."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.main import run
from perdure.model.tooling import Account, TaskSpec
from perdure.tools import ADAPTERS, CliSettings
from perdure.tools.adapters.base import Request
from tests.tools.api import Api
from tests.tools.conftest import VARIABLES
from tests.tools.place import SECONDS, Place, wait_until


@pytest.fixture
def place(tmp_path: Path, programs: Path) -> Place:
    (tmp_path / "prompt.txt").write_text("Write results.txt\n")
    return Place(tmp_path, programs)


class Typed:
    """Lines as they are typed, in this process: a program for each would be slow where other tests use the processors."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, line: str) -> str:
        """What the line prints."""
        words = shlex.split(line)
        assert words[0] == "schedulerctl"
        self._capsys.readouterr()
        code = run(words[1:])
        said = self._capsys.readouterr()
        assert code == 0, said.err
        return said.out

    def json(self, line: str) -> Any:
        """The one thing that it shows."""
        [item] = json.loads(self(f"{line} -o json"))["items"]
        return item


@pytest.fixture
def typed(place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    for name, value in place.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place.folder)
    monkeypatch.setattr(sys, "argv", ["schedulerctl"])
    return Typed(capsys)


ENQUEUE = "schedulerctl enqueue --tool codex --prompt @prompt.txt --output-spec results.txt"


def test_lines_on_accounts(typed: Typed) -> None:
    """codex does not read XDG_CONFIG_HOME, and perdure gives each run a folder of its own: the variable says where the credential
    is copied from, so the line is accepted as it is."""
    typed(
        "schedulerctl accounts add --id codex-main --tool codex --group-name codex-main --max 4"
        " --env XDG_CONFIG_HOME=/secrets/codex"
    )
    added = typed.json("schedulerctl accounts get codex-main")
    assert (added["tool"], added["group_name"], added["max_concurrency"]) == ("codex", "codex-main", 4)
    assert (added["enabled"], added["dangerous"]) == (True, False)
    assert added["env_vars"] == {"XDG_CONFIG_HOME": "/secrets/codex"}
    typed("schedulerctl accounts disable codex-main")
    assert "disabled" in typed("schedulerctl accounts ls")
    typed("schedulerctl accounts enable codex-main")
    assert "enabled" in typed("schedulerctl accounts ls")
    typed("schedulerctl accounts set-limits codex-main --max 7")
    assert "0/7" in typed("schedulerctl accounts ls")


def test_lines_on_tasks(typed: Typed) -> None:
    id = typed(ENQUEUE).split()[0]
    assert id[-8:] in typed("schedulerctl tasks ls")
    assert id[-8:] in typed("schedulerctl ls")
    assert "PENDING" in typed(f"schedulerctl tasks get {id}")
    assert "PENDING" in typed(f"schedulerctl get {id}")
    assert "PENDING" in typed(f"schedulerctl tasks get {id} --with-files")
    typed(f"schedulerctl tasks cancel {id}")
    assert "CANCELLED" in typed(f"schedulerctl tasks get {id}")
    second = typed(f"schedulerctl tasks requeue {id}").split()[0]
    typed(f"schedulerctl cancel {second}")
    third = typed(f"schedulerctl requeue {second}").split()[0]
    assert len({id, second, third}) == 3
    assert typed.json(f"schedulerctl tasks get {third}")["origin_id"] == second
    assert typed.json(f"schedulerctl tasks get {id}")["status"] == "CANCELLED", "what has ended stays as it is"


@pytest.mark.crash
@pytest.mark.parametrize(
    ("line", "processes"),
    [
        ("schedulerctl worker start --tools codex,claude --processes 4", 4),
        ("schedulerctl worker start --accounts auto --processes 4", 4),
        ("schedulerctl worker start --accounts codex-main,claude-a,claude-b", 1),
    ],
)
def test_lines_on_workers(place: Place, typed: Typed, api: Api, line: str, processes: int) -> None:
    """The workers are programs of their own."""
    for id, tool in (("codex-main", "codex"), ("claude-a", "claude"), ("claude-b", "claude")):
        key, base, suffix = VARIABLES[tool]
        env = f"--env {key}=env:CODEX_KEY --env {base}={shlex.quote(api.url('write') + suffix)}"
        typed(f"schedulerctl accounts add --id {id} --tool {tool} {env}")
    task = typed(ENQUEUE).split()[0]
    worker = place.started_line(line)
    try:
        wait_until(lambda: place.alive() == processes, "all are there")
        assert typed("schedulerctl worker status").count("running") == processes
        wait_until(lambda: place.statuses() == ["COMPLETED"], "the end of the task")
        shown = typed.json(f"schedulerctl tasks get {task} --with-files")
        assert [(file["path"], file["text"]) for file in shown["files"]] == [("results.txt", "hello")]
        assert shown["runs"][0]["account"] == "codex-main"
        assert typed("schedulerctl worker stop").count("asked ") == processes
        assert worker.wait(SECONDS) == 0
        assert "running" not in typed("schedulerctl worker status")
    finally:
        worker.kill()


def test_codex_is_called_as_today_s_codex_allows(place: Place, programs: Path) -> None:
    """The document has `codex exec -a never --sandbox workspace-write [-m <model>]`, which this codex refuses: the option belongs
    before `exec`."""
    refused = subprocess.run(
        [programs / "codex", "exec", "-a", "never", "--sandbox", "workspace-write"],
        env=place.env,
        cwd=place.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (refused.returncode, "unexpected argument '-a'" in refused.stderr) == (2, True)
    args = arguments("codex", model="gpt-5")
    assert args[:3] == ("-a", "never", "exec")
    assert args[args.index("-s") + 1] == "workspace-write"
    assert args[args.index("-m") + 1] == "gpt-5"
    assert "-m" not in arguments("codex")


def test_claude_is_called_without_dangerous_flags_unless_they_are_permitted() -> None:
    """`claude -p`, and `--dangerously-skip-permissions --no-session-persistence` under the document's two conditions."""
    dangerous = ("--dangerously-skip-permissions", "--no-session-persistence")
    args = arguments("claude")
    assert args[0] == "-p"
    assert dangerous[0] not in args
    args = arguments("claude", permitted=True)
    assert args[0] == "-p"
    assert args[args.index(dangerous[0]) :][:2] == dangerous


def arguments(tool: str, *, model: str | None = None, permitted: bool = False) -> tuple[str, ...]:
    """What a tool is started with."""
    here = Path("/tmp/x")
    request = Request(
        TaskSpec(tool, "hello", model=model),
        Account("a", tool),
        {},
        here,
        here,
        here,
        CliSettings(),
        dangerous=permitted,
    )
    return ADAPTERS[tool].command(request).args
