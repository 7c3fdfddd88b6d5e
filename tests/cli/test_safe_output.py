"""Nothing of a job reaches the terminal raw, whatever the command, and what is suggested can be pasted into a shell."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.cli.format import clean_text
from perdure.cli.main import run
from perdure.model.safe_text import same_length
from tests.cli.conftest import Perdure, program

NASTY = "x\x1b[2J\x1b]0;owned\x07\x9b31m\u202egro\u2066\U000e0041y\rz"
"""Clears the screen, sets the title, colours, turns the direction round, hides a letter, overwrites the line."""
APP = f"""
import logging

import structlog

from perdure import App, Fail

NASTY = {NASTY!r}
app = App()

@app.job
async def nasty(ctx, text: str) -> str:
    await ctx.step(text, str, text)
    await ctx.progress(0.5, text)
    await ctx.emit("said", {{text: text}})
    return text

@app.job
async def fails(ctx, text: str) -> None:
    logging.getLogger("mine").error("says %s", NASTY, extra={{NASTY: NASTY}})
    structlog.get_logger().error("says " + NASTY, why=NASTY, thing=[NASTY], forged="a\\n2026 [info] fine")
    raise ValueError(NASTY)

@app.job
async def gives_up(ctx, text: str) -> None:
    raise Fail(NASTY)

@app.job
async def asks(ctx, text: str) -> None:
    await ctx.approve(text, title=text, payload={{text: text}}, assignees=[text])
"""


def raw(text: str) -> list[str]:
    """What of a text a terminal would obey or not show."""
    return [repr(line) for line in text.split("\n") if same_length(line) != line]


@pytest.fixture
def ids(place: Path, perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Jobs of each kind that went as far as they go, all their text nasty; and what the worker logged."""
    import json

    (place / "nasty.py").write_text(APP)
    monkeypatch.setenv("PERDURE_APP", "nasty:app")
    found = {}
    for kind in ("nasty", "fails", "gives_up", "asks"):
        more = ["--goal", NASTY, "--key", NASTY + kind, "--max-retries", "0", "--input", json.dumps(NASTY)]
        found[kind] = perdure("jobs", "start", kind, *more, "-o", "id").out.strip()
    yield found
    sys.modules.pop("nasty", None)


class TestCommands:
    """Every command that shows what a job said."""

    def test_pages_lists_fields_and_errors(self, perdure: Perdure, ids: dict[str, str]) -> None:
        worker = program("worker", "start", "--once")
        assert raw(worker.out + worker.err) == []
        assert "owned" in worker.err
        lines = [line for line in worker.err.splitlines() if line.startswith("2026 ")]
        assert lines == [], "no value of a job looks like a line of its own"
        commands = [
            "jobs ls",
            "jobs ls --fields goal,result,error_message,payload",
            "approvals ls",
            "jobs count --by kind",
        ]
        for id in ids.values():
            commands += [f"jobs get {id}", f"jobs get {id} --show all", f"jobs explain {id}", f"jobs events {id}"]
            commands += [
                f"jobs events {id} --fields payload",
                f"jobs steps {id}",
                f"jobs get {id} --fields result,goal,key",
            ]
            commands += [f"jobs get {id} --fields goal", f"jobs get {id} --fields error_message", f"jobs export {id}"]
            commands += [f"jobs cancel {id}", f"jobs steps {id} -o id"]
        commands += [
            f"approvals get {ids['asks']}",
            f"approvals approve {ids['asks']}",
            f"jobs diff {ids['asks']} {ids['fails']}",
        ]
        commands += [f"jobs watch {ids['fails']}", f"jobs rerun {ids['fails']}", "fsck", "doctor", "db status"]
        for command in commands:
            for more in ((), ("--json",), ("--color", "always"), ("-vv",)):
                if "export" in command and more == ("--json",):
                    continue
                done = perdure(*command.split(), *more, code=None)
                said = done.out + done.err
                if more == ("--color", "always"):
                    said = _uncoloured(said)
                assert raw(said) == [], (command, more)

    def test_a_job_that_is_followed(self, perdure: Perdure, ids: dict[str, str]) -> None:
        assert ids
        code = (
            "import json, sys, subprocess\n"
            "worker = subprocess.Popen([sys.executable, '-m', 'perdure', 'worker', 'start', '-q'], stderr=subprocess.DEVNULL)\n"
            "command = [sys.executable, '-m', 'perdure', 'jobs', 'start', sys.argv[1]]\n"
            "command += ['--input', json.dumps(sys.argv[2]), '-f']\n"
            "done = subprocess.run(command, capture_output=True, timeout=30)\n"
            "worker.terminate()\n"
            "worker.wait()\n"
            "sys.stdout.buffer.write(done.stdout + done.stderr)\n"
        )
        import subprocess

        for kind in ("nasty", "gives_up"):
            done = subprocess.run([sys.executable, "-c", code, kind, NASTY], capture_output=True, text=True, check=True)
            assert "owned" in done.stdout
            assert raw(done.stdout.replace("\r\n", "\n")) == []

    def test_logs_as_json_are_json_and_show_nothing_raw(self, ids: dict[str, str]) -> None:
        import json

        assert ids
        lines = program("worker", "start", "--once", "--log-format", "json").err.splitlines()
        said = [json.loads(line) for line in lines]
        assert any(line.get("why") == NASTY for line in said), "programs get the text itself"
        assert raw("\n".join(lines)) == []


class TestErrors:
    """Errors, warnings and tracebacks."""

    @pytest.mark.parametrize("form", [[], ["--json"], ["-vv"]])
    def test_an_error_that_repeats_what_was_given(self, perdure: Perdure, form: list[str]) -> None:
        for command in (["jobs", "get", NASTY], ["jobs", "ls", "--status", NASTY], ["worker", "start", "--app", NASTY]):
            done = perdure(*command, *form, code=None)
            assert done.code
            assert raw(done.err) == []

    def test_a_traceback_of_code_that_does_not_load(self, perdure: Perdure, place: Path) -> None:
        (place / "broken.py").write_text(f"raise RuntimeError({NASTY!r})")
        said = perdure("worker", "start", "--app", "broken:app", "-vv", code=2).err
        assert "Traceback" in said
        assert raw(said) == []


class TestSuggestions:
    """Commands that are suggested are quoted for the shell."""

    def test_names_with_a_meaning_in_the_shell(self, perdure: Perdure, place: Path) -> None:
        (place / "a; rm x").mkdir()
        url = "sqlite:///a; rm x/perdure.db"
        said = perdure(
            "jobs", "start", "greet", "--app", "agents:app", "--input", '"x"', "--db", url, "--tenant", "$(id)"
        ).err
        words = shlex.split(said.partition("watch it: ")[2])
        assert words[-4:] == ["--db", url, "--tenant", "$(id)"]

    def test_parts_of_a_command_line_that_was_refused(self, perdure: Perdure) -> None:
        assert "--input '\"a $(id)\"'" in perdure("jobs", "start", "x", "--input", "a $(id)", code=2).err
        assert "= alone: -P 'k=$(id)'" in perdure("jobs", "start", "x", "-P", "k:=$(id)", code=2).err
        assert "--app '$(id):app'" in perdure("worker", "start", "--app", "$(id)", code=2).err
        assert "mkdir -p '" in perdure("jobs", "start", "x", "--db", "sqlite:///a b$(id)/x.db", code=10).err


def _uncoloured(text: str) -> str:
    import re

    return re.sub("\x1b\\[[0-9;]*m", "", text)


def test_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    text = "Ünïcödé 中文 ✓ 👩‍💻 שלום\ttab\nline"
    assert clean_text(text) == text
    assert same_length(text) == text
    assert run(["jobs", "get", "שלום"]) == 2
    assert "שלום" in capsys.readouterr().err
