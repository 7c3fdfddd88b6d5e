"""The example without async, as two programs: a worker, and one that enqueues and waits."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.support import ENVIRONMENT, load_example

SCRIPT = ROOT / "examples" / "plain_script.py"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory with a worker."""
    with (tmp_path / "worker.log").open("w") as log:
        worker = subprocess.Popen(
            [sys.executable, SCRIPT, "work"], cwd=tmp_path, env=ENVIRONMENT, stdout=log, stderr=log
        )
    yield tmp_path
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) in (0, 143), (tmp_path / "worker.log").read_text()


def ask(place: Path, *files: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *files],
        cwd=place,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_files_are_counted_and_what_is_none_is_reported(place: Path) -> None:
    (place / "a.txt").write_text("one two\nthree\n")
    (place / "b.txt").write_text("")
    done = ask(place, "a.txt", "b.txt")
    assert (done.returncode, done.stdout.split()) == (0, ["3", "a.txt", "0", "b.txt"]), done.stderr
    assert ask(place, "a.txt").stdout.split() == ["3", "a.txt"]  # the same job
    (place / "a.txt").write_text("changed")
    assert ask(place, "a.txt").stdout.split() == ["1", "a.txt"]
    gone = ask(place, "gone.txt", "a.txt")
    assert (gone.returncode, gone.stdout.split()) == (1, ["1", "a.txt"])
    assert "gone.txt is no file" in gone.stderr


@pytest.mark.parametrize("text", ["a bb ccc dddd\n\neeeee f", "  x  ", "abcdefgh", "", "ab cd ef "])
def test_a_word_over_a_border_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    example = load_example("plain_script")
    path = tmp_path / "text"
    path.write_text(text)
    for size in range(1, 12):
        monkeypatch.setattr(example, "PART", size)
        assert sum(example.count(str(path), part) for part in range(len(text) // size + 1)) == len(text.split())
