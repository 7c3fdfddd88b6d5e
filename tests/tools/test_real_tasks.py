"""Tasks of the real codex from the command line, as a user types it: processes, signals, files."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tools.api import Api
from tests.tools.conftest import KEY

SECONDS = 60


class Place:
    """A folder with a database, and programs that run in it."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.work_dir = folder / "work"
        self.env = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "HOME": str(folder),
            "CODEX_KEY": KEY,
            "PERDURE_CLI_WORK_DIR": str(self.work_dir),
            "PERDURE_CLI_BACKOFF_BASE": "0",
            "PERDURE_LEASE": "3s",
        }
        self._argv = [sys.executable, "-m", "perdure"]

    def run(self, *words: str) -> str:
        ended = subprocess.run(
            [*self._argv, *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def json(self, *words: str) -> Any:
        [item] = json.loads(self.run(*words, "-o", "json"))["items"]
        return item

    def worker(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "worker.log").open("ab") as log:
            return subprocess.Popen(
                [*self._argv, "worker", "start", *words], cwd=self.folder, env=self.env, stderr=log, stdout=log
            )

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


@pytest.fixture
def place(tmp_path: Path, programs: Path) -> Place:
    return Place(tmp_path, programs)


def wait_until(true: Callable[[], Any], what: str) -> None:
    ends = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < ends, f"{what} did not come true"
        time.sleep(0.1)


def add_account(place: Place, url: str) -> None:
    env = ("--env", "OPENAI_API_KEY=env:CODEX_KEY", "--env", f"OPENAI_BASE_URL={url}/v1")
    place.run(
        "accounts", "add", "--id", "codex-main", "--tool", "codex", "--group-name", "codex-main", "--max", "4", *env
    )


def enqueue(place: Place, *words: str) -> str:
    (place.folder / "prompt.txt").write_text("Write results.txt\n")
    line = ("enqueue", "--tool", "codex", "--prompt", "@prompt.txt", "--output-spec", "results.txt")
    return place.run(*line, "--model", "gpt-5", *words, "-o", "id").strip()


def test_a_file_written_by_the_real_codex(place: Place, api: Api) -> None:
    add_account(place, api.url("write"))
    id = enqueue(place)
    worker = place.worker("--accounts", "auto", "--once")
    assert worker.wait(SECONDS) == 0
    task = place.json("tasks", "get", id, "--with-files")
    assert task["status"] == "COMPLETED", (place.folder / "worker.log").read_text()
    [run] = task["runs"]
    assert (run["class"], run["account"], run["exit_code"]) == ("ok", "codex-main", 0)
    assert run["tokens_in"] > 0
    [file] = task["files"]
    assert (file["path"], file["text"]) == ("results.txt", "hello")
    assert place.run("tasks", "artifacts", "cat", id, "results.txt") == "hello"
    assert "thread.started" in place.run("tasks", "logs", id)
    for path in place.folder.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), f"the key is in {path.name}"


@pytest.mark.crash
def test_a_worker_killed_while_the_real_codex_runs(place: Place, api: Api) -> None:
    add_account(place, api.url("hang"))
    id = enqueue(place)
    worker = place.worker("--tools", "codex")
    wait_until(place.processes, "a running codex")
    worker.send_signal(signal.SIGKILL)
    worker.wait(SECONDS)
    wait_until(lambda: not place.processes(), "the end of all that codex had started")
    assert list(place.work_dir.glob("*.run")), "nothing was there to remove the workspace"
    place.run("accounts", "rm", "codex-main", "--yes")
    add_account(place, api.url("write"))
    second = place.worker("--tools", "codex")
    wait_until(lambda: place.json("tasks", "get", id)["status"] == "COMPLETED", "the end of the task")
    task = place.json("tasks", "get", id)
    assert len(task["runs"]) == 1
    assert list(place.work_dir.glob("*.run")) == []
    place.run("worker", "stop")
    assert second.wait(SECONDS) == 0


@pytest.mark.crash
def test_a_task_that_is_cancelled_leaves_no_process(place: Place, api: Api) -> None:
    add_account(place, api.url("hang"))
    id = enqueue(place)
    worker = place.worker("--tools", "codex")
    wait_until(place.processes, "a running codex")
    place.run("tasks", "cancel", id)
    wait_until(lambda: place.json("tasks", "get", id)["status"] == "CANCELLED", "the cancel")
    wait_until(lambda: not place.processes(), "the end of codex")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(SECONDS) == 0
    assert list(place.work_dir.glob("*.run")) == []
