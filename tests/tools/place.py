"""A folder with a database, and programs that run in it, as a user runs them."""

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.tools.conftest import KEY, VARIABLES

SECONDS = 120


class Place:
    """The folder. programs: where the coding CLIs are."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.work_dir = folder / "work"
        self.env = {
            "PATH": f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(folder),
            "CODEX_KEY": KEY,
            "PERDURE_CLI_WORK_DIR": str(self.work_dir),
            "PERDURE_CLI_BACKOFF_BASE": "0",
            "PERDURE_LEASE": "3s",
        }
        self._argv = [sys.executable, "-m", "perdure"]

    def run(self, *words: str) -> str:
        return self._ended([*self._argv, *words]).stdout

    def _ended(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            argv, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended

    def statuses(self) -> list[str]:
        """Of all jobs, as SQL reads them: a program for each look would take the processors from what is waited for."""
        return self._column("select status from jobs")

    def alive(self) -> int:
        """How many workers run."""
        return len(self._column("select id from workers where state = 'RUNNING'"))

    def _column(self, sql: str) -> list[str]:
        with closing(sqlite3.connect(self.folder / "perdure.db")) as database:
            return [row[0] for row in database.execute(sql)]

    def json(self, *words: str) -> Any:
        [item] = json.loads(self.run(*words, "-o", "json"))["items"]
        return item

    def worker(self, *words: str) -> subprocess.Popen[bytes]:
        return self._started([*self._argv, "worker", "start", *words])

    def started_line(self, line: str) -> subprocess.Popen[bytes]:
        """A command line of a shell that goes on."""
        return self._started(["sh", "-c", f"exec {line}"])

    def _started(self, argv: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "worker.log").open("ab") as log:
            return subprocess.Popen(argv, cwd=self.folder, env=self.env, stderr=log, stdout=log)

    @property
    def log(self) -> str:
        """What workers wrote."""
        return (self.folder / "worker.log").read_text()

    def add_account(self, url: str, id: str = "codex-main", tool: str = "codex") -> None:
        """An account whose API is at this address of this machine."""
        key, base, suffix = VARIABLES[tool]
        env = ("--env", f"{key}=env:CODEX_KEY", "--env", f"{base}={url}{suffix}")
        self.run("accounts", "add", "--id", id, "--tool", tool, "--max", "4", *env)

    def processes(self) -> list[int]:
        """Those that work in a workspace."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    cwd = str((entry / "cwd").readlink())
                except OSError:
                    continue
                if cwd.startswith(str(self.work_dir)):
                    found.append(int(entry.name))
        return found


def wait_until(true: Callable[[], Any], what: str) -> None:
    ends = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < ends, f"{what} did not come true"
        time.sleep(0.1)
