"""Completion: what a TAB offers, asked as the shells ask, and once through a real bash."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.cli import completion as completing
from tests.cli.conftest import Done, Perdure


class Tab:
    """A TAB at the end of these words."""

    def __init__(self, perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
        self._perdure = perdure
        self._monkeypatch = monkeypatch

    def at(self, *words: str, shell: str = "fish", code: int = 0) -> Done:
        """What the program answers the shell's script."""
        with self._monkeypatch.context() as patch:
            patch.setenv("_PERDURE_COMPLETE", shell)
            return self._perdure(*words, code=code)

    def __call__(self, *words: str) -> list[str]:
        """The values, without what they are."""
        done = self.at(*words)
        assert done.err == ""
        return [line.split("\t")[0] for line in done.lines]


@pytest.fixture
def tab(perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> Tab:
    monkeypatch.setattr(completing, "BUDGET", 30.0)
    return Tab(perdure, monkeypatch)


def test_commands(tab: Tab) -> None:
    assert {"jobs", "approvals", "worker", "db"} <= set(tab(""))
    assert tab("jo") == ["jobs"]
    assert {"start", "ls", "retry-now"} <= set(tab("jobs", ""))
    assert tab("jobs", "re") == ["replay", "retry-now", "rerun"]
    assert tab("job", "retr") == ["retry-now"], "through an alias"
    assert tab("nothing", "") == []
    assert tab("version", "") == []


def test_options_and_their_values(tab: Tab) -> None:
    assert tab("jobs", "ls", "--st") == ["--status"]
    assert "--supervised" not in tab("worker", "start", "--")
    assert tab("jobs", "ls", "--status", "comp") == ["completed"]
    assert tab("jobs", "ls", "--status", "completed,c") == ["completed,cancelled"], "not the same twice"
    assert tab("db", "prune", "--status", "") == ["completed", "failed", "cancelled", "deadletter"]
    assert "approved" in tab("approvals", "ls", "--status", "")
    assert tab("jobs", "count", "--by", "") == ["status", "kind", "queue"]
    assert tab("jobs", "get", "--show", "payload,res") == ["payload,result"]
    assert tab("jobs", "diff", "--what", "input,") == ["input,steps", "input,result", "input,outcome"]
    assert tab("jobs", "fork", "--from-step", "") == []
    assert "job_created" in tab("jobs", "events", "--type", "job_")
    assert tab("--color=a") == ["--color=auto", "--color=always"]
    assert tab("jobs", "ls", "-o", "j") == ["json", "jsonl"]
    assert tab("completion", "") == ["bash", "zsh", "fish"]
    assert tab("config", "get", "linge") == ["linger"]
    assert tab("jobs", "ls", "--limit", "") == []
    assert tab("jobs", "ls", "--", "--st") == []


def test_options_before_the_command(tab: Tab) -> None:
    assert tab("-o", "jso") == ["json", "jsonl"]
    assert tab("--db", "sqlite:///x.db", "-q", "jobs", "ca") == ["cancel"]
    assert tab("--output=json", "jobs", "ca") == ["cancel"]
    assert tab("jobs", "start", "--wait", "--fol") == ["--follow"], "its value may be left out"


@pytest.mark.parametrize(
    "words",
    [("jobs", "export", "--to", ""), ("db", "prune", "--export", "x"), ("demo", ""), ("db", "prune", "--export=")],
)
def test_files_are_left_to_the_shell(tab: Tab, words: tuple[str, ...]) -> None:
    assert tab.at(*words, code=3).out == ""


def test_what_is_in_the_database(anywhere: Perdure, tab: Tab) -> None:
    nap = anywhere.start("naps", "--goal", "a long\n\x1b[2Jnap", "--queue", "slow")
    done = anywhere.ran("greet", "--input", '"ann"')
    assert tab("jobs", "get", "") == [done[-8:], nap[-8:]]
    assert tab("jobs", "get", nap[-8:], done[-8:-4]) == [done[-8:]], "several ids"
    assert tab("jobs", "cancel", "") == [nap[-8:]], "what can be cancelled"
    assert tab("jobs", "rerun", "") == [done[-8:]]
    assert (
        tab("jobs", "explain", "")
        == tab("jobs", "diff", nap[-8:], "")
        == tab("jobs", "fork", "")
        == [done[-8:], nap[-8:]]
    )
    assert f"{nap[-8:]}\tpending naps a long \\x1b[2Jnap" in tab.at("jobs", "get", "").lines
    assert tab("jobs", "ls", "--kind", "gr") == ["greet"]
    assert tab("jobs", "ls", "--queue", "") == ["default", "slow"]
    assert tab("jobs", "events", done[-8:], "") == [], "one id is all it takes"
    assert tab("worker", "stop", "") == []
    asked = anywhere.ran("asks", "--input", '"a draft"')
    [approval] = anywhere("approvals", "ls", "-o", "id").lines
    assert tab("approvals", "approve", "") == [approval[-8:]]
    assert asked[-8:] in tab("approvals", "ls", "--job", "")


def test_no_data_becomes_a_command(perdure: Perdure, tab: Tab) -> None:
    perdure("jobs", "start", "x; rm -rf ~")
    perdure("jobs", "start", "$(reboot)")
    perdure("jobs", "start", "*")
    perdure("jobs", "start", "plain")
    assert tab("jobs", "ls", "--kind", "") == ["plain"]


def test_nothing_is_said_where_there_is_no_database(
    tab: Tab, perdure: Perdure, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tab("jobs", "get", "") == []
    assert list(place.glob("perdure.db*")) == [], "a TAB makes no database"
    assert tab("--db", "postgresql://nobody@127.0.0.1:1/x", "jobs", "get", "") == []
    assert tab("--db", "mysql://x", "jobs", "get", "") == []
    (place / "perdure.toml").write_text("colour = 1\n")
    assert tab("jobs", "get", "") == []
    (place / "perdure.toml").unlink()
    (place / "perdure.db").write_bytes(b"")
    assert tab("jobs", "get", "") == []
    assert (place / "perdure.db").read_bytes() == b"", "nor a schema"


def test_a_slow_database_is_not_waited_for(perdure: Perdure, tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    perdure.start("naps")

    async def slow(*args: object) -> list[tuple[str, str]]:
        await asyncio.sleep(3600)
        raise AssertionError("unreachable")

    monkeypatch.setattr(completing, "BUDGET", 0.05)
    monkeypatch.setattr(completing, "_jobs", slow)
    assert tab("jobs", "get", "") == []


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("perdure jo", ["jobs"]),
        ("perdure jobs ls --color=al", ["always"]),
        ("perdure jobs ls --db mem", ["memory:"]),
        ("perdure jobs ls --db memory:", [""]),
        ("perdure jobs start 'a b' --fol", ["--follow"]),
        ("perdure jobs start --goal \"it's open", []),
        ("perdure jobs ls --status ", ["pending"]),
        ("perdure ", ["dev"]),
    ],
)
def test_lines_as_bash_has_them(tab: Tab, line: str, offered: list[str]) -> None:
    assert tab.at(line, shell="bash").lines[: len(offered) or None][:1] == offered


def test_descriptions_as_zsh_wants_them(tab: Tab) -> None:
    assert tab.at("jobs", "ls", "--db", "sq", shell="zsh").out == "sqlite\\:///:a file\n"
    assert tab.at("jobs", "ls", "--status", "fa", shell="zsh").out == "failed\n"


def bash() -> str | None:
    """A bash that has what the script needs."""
    found = shutil.which("bash")
    if found is None:
        return None
    version = subprocess.run([found, "-c", "echo $BASH_VERSION"], capture_output=True, text=True, check=True).stdout
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return found if numbers and (int(numbers[1]), int(numbers[2])) >= (4, 4) else None


@pytest.mark.skipif(bash() is None, reason="no bash 4.4 here")
def test_a_real_bash(perdure: Perdure, tmp_path: Path) -> None:
    id = perdure.start("naps")
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "perdure"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perdure "$@"\n')
    program.chmod(0o755)
    script = tmp_path / "perdure.bash"
    script.write_text(perdure("completion", "bash").out)

    def offered(line: str) -> list[str]:
        given = (
            f'source "{script}"; COMP_LINE=$1; COMP_POINT=${{#1}}; _perdure perdure; printf "%s\\n" "${{COMPREPLY[@]}}"'
        )
        done = subprocess.run(
            [str(bash()), "--norc", "-c", given, "bash", line],
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return [word for word in done.stdout.splitlines() if word]

    assert offered("perdure jobs ls --sta") == ["--status"]
    assert offered("perdure jobs ls --color=") == ["auto", "always", "never"]
    assert offered("perdure jobs export --to ") == []
    found: list[str] = []
    for _ in range(20):  # a busy machine may need more than the half second that a TAB waits for the database
        if found := offered("perdure jobs get "):
            break
    assert found == [id[-8:]]
