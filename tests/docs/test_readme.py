"""The README, done as it says: its agent in a file, its worker and its program as processes, its commands in between."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.cli.main import root
from tests.docs.pages import ROOT, blocks
from tests.docs.support import ENVIRONMENT, a_worker

README = ROOT / "README.md"
ENV = {**ENVIRONMENT, "CI": "1", "PYTHONPATH": "."}


def perdure(directory: Path, *arguments: str) -> str:
    """Run a command and return what it prints on stdout."""
    command = [sys.executable, "-m", "perdure", *arguments]
    done = subprocess.run(command, cwd=directory, env=ENV, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory with the README's agent.py, and a worker for it."""
    agent, _ = blocks(README, "python")
    (tmp_path / "agent.py").write_text(agent.text)
    with a_worker(tmp_path, "agent:app", ENV):
        yield tmp_path


def approve_the_pending_one(place: Path) -> None:
    for _ in range(200):
        found = perdure(place, "approvals", "ls", "-o", "id").split()
        if found:
            perdure(place, "approvals", "approve", found[0][-8:], "--comment", "ok")
            return
        time.sleep(0.1)
    raise AssertionError("nothing to approve: " + (place / "worker.log").read_text())


@pytest.mark.slow
def test_the_agent_from_the_command_line_and_from_a_program(place: Path) -> None:
    perdure(place, "jobs", "start", "research", "-P", "topic=coffee", "--app", "agent:app")
    approve_the_pending_one(place)
    _, program = blocks(README, "python")
    command = [sys.executable, "-c", program.text]
    running = subprocess.Popen(command, cwd=place, env=ENV, stdout=subprocess.PIPE, text=True)
    approve_the_pending_one(place)
    said, _ = running.communicate(timeout=60)
    assert said == "report.txt\n"
    assert (place / "report.txt").read_text().startswith("what coffee, source 1 says")
    job = perdure(place, "jobs", "ls", "--status", "completed", "-o", "id").split()[0]
    log = perdure(place, "jobs", "events", job[-8:])
    assert "summarise#3" in log


def test_the_readme_is_short_and_starts_with_code() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    assert len(text.partition("```")[0].split()) <= 60


def test_the_readme_begins_and_ends_with_what_works_in_a_clone() -> None:
    shell = blocks(README, "sh")
    assert (shell[0].text, shell[-1].text) == ("make demo\n", "make test\n")
    assert "pip install" not in "".join(block.text for block in shell)


def test_every_command_is_in_the_readme() -> None:
    table = README.read_text(encoding="utf-8").partition("| Command |")[2].partition("\n\n")[0]
    tree = root()
    words = [*tree.list_commands(None)]
    for name in words.copy():
        group = tree.get_command(None, name)
        if hasattr(group, "list_commands"):
            words += [word for word in group.list_commands(None) if not group.get_command(None, word).hidden]
    assert [word for word in words if not re.search(rf"`(perdure )?{word}`", table)] == []


def test_quickstart_and_readme_show_the_same_agent() -> None:
    (agent, _), (quick, _) = blocks(README, "python"), blocks(ROOT / "docs" / "quickstart.md", "python")
    without_comments = [re.sub(r" *#.*", "", block.text) for block in (agent, quick)]
    assert without_comments[0] == without_comments[1]
