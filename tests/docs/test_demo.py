"""`perdure demo`, whole: its crash, its takeover, its proof."""

from __future__ import annotations

import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.cli.demo import LEASE, run_demo
from tests.docs.support import ENVIRONMENT, commit, new_repository


@pytest.fixture(autouse=True)
def unattended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in continuous integration: no person is asked, whatever the terminal."""
    monkeypatch.setenv("CI", "1")


@pytest.mark.crash
@pytest.mark.slow
def test_the_demo_proves_its_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = new_repository(tmp_path / "kettle")
    for number in range(6):
        commit(repository, f"feat: part {number}", **{f"part{number}": "1\n"})
    code = run_demo(str(repository), directory=str(tmp_path / "kept"), auto_approve=False)
    said = capsys.readouterr().out
    assert code == 0, said
    assert re.search(r"kill -9 \d+, with 5 of 10 steps recorded", said)
    taken_over = re.search(r"the lease ran out ([\d.]+) s after the kill", said)
    assert taken_over is not None
    assert float(taken_over[1]) <= LEASE + 10
    assert "FAILED" not in said
    assert said.count("\n  ok ") == 6
    (kept,) = (tmp_path / "kept").iterdir()
    assert (kept / "RELEASE_NOTES.md").read_text().count("feat") == 0
    assert "Part 5" in (kept / "RELEASE_NOTES.md").read_text()
    commands = [shlex.split(line)[1:] for line in said.splitlines() if re.match(r"  \S*perdure ", line)]
    assert [" ".join(command[:2]) for command in commands] == ["jobs get", "jobs events", "jobs steps", "approvals get"]
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "perdure", *command], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
    with sqlite3.connect(kept / "perdure.db") as database:
        moves = database.execute("select to_status from job_events where to_status is not null order by version")
        assert [status for (status,) in moves] == [
            *("PENDING", "RUNNING", "RETRY", "RUNNING", "WAITING_FOR_APPROVAL", "RUNNING", "COMPLETED")
        ]
    database.close()


def test_a_directory_that_is_no_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(str(tmp_path), directory=None, auto_approve=True) == 1
    assert "is not a git repository" in capsys.readouterr().err


def test_an_empty_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(str(new_repository(tmp_path / "empty")), directory=None, auto_approve=True) == 1
    assert "has no commits yet" in capsys.readouterr().err


def test_no_git(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert run_demo(None, directory=None, auto_approve=True) == 1
    assert "git is not installed" in capsys.readouterr().err


def test_a_place_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert run_demo(None, directory=str(tmp_path / "file" / "below"), auto_approve=True) == 1
    assert "name another directory" in capsys.readouterr().err
