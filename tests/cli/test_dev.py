"""`perdure dev` and the live views: on a terminal of our own, and without one."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable

import pytest

from tests.cli.conftest import PROGRAM, Perdure, line_of, spawned

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """The program on a pseudo terminal."""

    def __init__(self, *args: str, columns: int = 100) -> None:
        self.text = ""
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm"}
        self._program = subprocess.Popen([*PROGRAM, *args], stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
        os.close(theirs)

    def until(self, words: str, seconds: float = 20) -> None:
        """Read until these words have appeared."""
        self._read(lambda: words in self.text, seconds)
        assert words in self.text, self.text

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._fd, keys.encode())

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        self._program.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Read to the end and return the exit code."""
        self._read(lambda: False, 20)
        os.close(self._fd)
        return self._program.wait(timeout=20)

    def _read(self, enough: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not enough() and time.monotonic() < deadline:
            if not select.select([self._fd], [], [], 0.1)[0]:
                continue
            try:
                self.text += ANSI.sub("", os.read(self._fd, 65536).decode(errors="replace"))
            except OSError:  # Linux says so when the program has ended
                return


class TestDev:
    """perdure dev."""

    def test_without_a_terminal_it_tells_each_change(self, perdure: Perdure) -> None:
        with spawned("dev") as dev:
            seen: list[str] = []
            while not any("WAITING_FOR_APPROVAL" in line for line in seen):
                seen.append(line_of(dev.stdout))
            perdure("approvals", "approve", perdure("approvals", "ls", "-o", "id").out.strip())
            while not any("COMPLETED" in line and "publish" in line for line in seen):
                seen.append(line_of(dev.stdout))
            dev.send_signal(signal.SIGINT)
            dev.communicate(timeout=20)
            assert dev.returncode == 0
        assert {"research", "flaky", "publish"} <= {line.split()[4] for line in seen}

    def test_on_a_terminal_it_is_a_live_table(self) -> None:
        terminal = Terminal("dev")
        terminal.until("Publish this draft?  in another terminal: perdure approvals approve ")
        terminal.until("RETRY")
        assert "sqlite:///perdure.db" in terminal.text
        terminal.interrupt()
        assert terminal.end() == 0

    def test_your_own_app_starts_no_samples(self, perdure: Perdure) -> None:
        id = perdure.start("greet", "--input", '"ann"')
        with spawned("dev", "--app", "agents:app") as dev:
            while "COMPLETED" not in line_of(dev.stdout):
                pass
            dev.terminate()
            assert dev.wait(timeout=20) == 0
        assert perdure("jobs", "ls", "-o", "id").lines == [id]

    def test_bad_options(self, perdure: Perdure) -> None:
        assert "concurrency (flag) is invalid" in perdure("dev", "--concurrency", "x", code=2).err
        assert "[perdure help app-not-found]" in perdure("dev", "--app", "nowhere:app", code=2).err


class TestTerminal:
    """What is different on a terminal."""

    def test_watching_is_a_live_table(self, perdure: Perdure) -> None:
        id = perdure.start("naps")
        terminal = Terminal("jobs", "watch", id, columns=60)
        terminal.until("PENDING")
        perdure("jobs", "cancel", id)
        assert terminal.end() == 7
        assert "⊘ CANCELLED" in terminal.text

    def test_tables_fit(self, perdure: Perdure) -> None:
        perdure("jobs", "start", "x", "--goal", "a very long goal " * 10)
        terminal = Terminal("jobs", "ls", columns=60)
        assert terminal.end() == 0
        lines = terminal.text.replace("\r", "").splitlines()
        assert len(lines) == 2
        assert max(map(len, lines)) <= 60
        assert " AGE " in lines[0]

    @pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, {"CANCELLED": 2}), ("n", 1, {"PENDING": 2})])
    def test_questions(self, perdure: Perdure, answer: str, code: int, left: dict[str, int]) -> None:
        ids = [perdure.start("naps"), perdure.start("naps")]
        terminal = Terminal("jobs", "cancel", *ids)
        terminal.until("Cancel 2 jobs? [y/N]")
        terminal.type(answer + "\n")
        assert terminal.end() == code
        assert perdure("jobs", "count", "--json").json == left

    @pytest.mark.parametrize("how", ["flag", "CI"])
    def test_no_question_is_asked(self, perdure: Perdure, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
        ids = [perdure.start("naps"), perdure.start("naps")]
        if how == "CI":
            monkeypatch.setenv("CI", "true")
        terminal = Terminal("jobs", "cancel", *ids, *(["--no-input"] if how == "flag" else []))
        assert terminal.end() == 2
        assert "add --yes" in terminal.text
