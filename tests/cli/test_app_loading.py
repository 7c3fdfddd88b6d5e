"""Which commands import the user's App, and what becomes of what it prints."""

from pathlib import Path

import pytest

from tests.cli.conftest import Perdure, program

BROKEN = """
from pathlib import Path

Path("imported").touch()
raise RuntimeError("no API key")
"""
NOISY = """
import os
import subprocess

from perdure import App

print("loading agents")
subprocess.run(["echo", "from a child"])
app = App("sqlite:///theirs.db")

@app.job
async def greet(ctx, name: str) -> str:
    return name
"""


@pytest.fixture
def broken(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An App that does not load, in PERDURE_APP."""
    (place / "broken.py").write_text(BROKEN)
    monkeypatch.setenv("PERDURE_APP", "broken:app")
    return place


@pytest.fixture
def noisy(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An App that prints when it is imported, with a database of its own, in PERDURE_APP."""
    (place / "noisy.py").write_text(NOISY)
    monkeypatch.setenv("PERDURE_APP", "noisy:app")
    return place


class TestBroken:
    """An App that does not load."""

    @pytest.mark.parametrize(
        "command",
        [
            "jobs ls",
            "jobs get {}",
            "jobs explain {}",
            "jobs rerun {}",
            "jobs fork {}",
            "jobs cancel {}",
            "approvals ls",
            "worker status",
            "worker stop --all",
            "fsck",
            "config ls",
            "db status",
        ],
    )
    def test_stops_no_command_that_needs_no_handler(self, perdure: Perdure, broken: Path, command: str) -> None:
        id = perdure.start("greet", "--input", '"ann"')
        perdure(*command.format(id).split())
        assert not (broken / "imported").exists()

    @pytest.mark.parametrize("command", ["worker start", "dev", "jobs start greet", "jobs fork {} --set input=x"])
    def test_stops_those_that_need_one(self, perdure: Perdure, broken: Path, command: str) -> None:
        id = perdure.start("greet", "--input", '"ann"')
        done = perdure(*command.format(id).split(), code=2)
        assert "RuntimeError: no API key (at" in done.err
        assert "[perdure help app-not-found]" in done.err
        assert (broken / "imported").exists()

    @pytest.mark.parametrize("error", ["BaseException", "GeneratorExit", "asyncio.CancelledError"])
    def test_whatever_it_raises(self, perdure: Perdure, place: Path, error: str) -> None:
        (place / "odd.py").write_text(f"import asyncio\nraise {error}('odd \\x1b[2J')")
        done = perdure("worker", "start", "--app", "odd:app", code=2)
        assert "importing 'odd' failed" in done.err
        assert "\x1b" not in done.err

    def test_is_named_by_doctor_which_looks_at_the_rest(self, perdure: Perdure, broken: Path) -> None:
        assert not (broken / "imported").exists()
        perdure.start("greet", "--input", '"ann"')
        checks = {c["name"]: c for c in perdure("doctor", "--json", code=1).json["checks"]}
        assert checks["app"]["status"] == "wrong"
        assert "no API key" in checks["app"]["detail"]
        assert checks["schema"]["status"] == "ok"


class TestNoisy:
    """An App that prints."""

    def test_what_it_prints_is_not_among_the_data(self, noisy: Path) -> None:
        done = program("jobs", "start", "greet", "--input", '"ann"', "-o", "id")
        assert len(done.out.split()) == 1
        assert "loading agents" in done.err
        assert "from a child" in done.err
        assert (noisy / "theirs.db").exists()

    def test_its_database_is_in_the_next_command(self, perdure: Perdure, noisy: Path) -> None:
        assert noisy.exists()
        said = perdure("jobs", "start", "greet", "--input", '"ann"').err
        assert "--db sqlite:///theirs.db" in said

    def test_doctor_says_that_other_commands_use_another_database(self, perdure: Perdure, noisy: Path) -> None:
        assert noisy.exists()
        said = perdure("doctor").out
        assert "noisy:app uses sqlite:///theirs.db; commands without handlers use sqlite:///perdure.db" in said

    def test_where_nothing_is_found_the_app_is_named(self, perdure: Perdure, noisy: Path) -> None:
        assert noisy.exists()
        assert "if noisy:app names another, so does --app noisy:app" in perdure("jobs", "ls").err
