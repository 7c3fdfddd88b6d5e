"""Tasks of the real codex from the command line, as a user types it: processes, signals, files."""

import signal
from pathlib import Path

import pytest

from tests.tools.api import Api
from tests.tools.conftest import KEY
from tests.tools.place import SECONDS, Place, wait_until


@pytest.fixture
def place(tmp_path: Path, programs: Path) -> Place:
    return Place(tmp_path, programs)


def enqueue(place: Place, *words: str) -> str:
    (place.folder / "prompt.txt").write_text("Write results.txt\n")
    line = ("enqueue", "--tool", "codex", "--prompt", "@prompt.txt", "--output-spec", "results.txt")
    return place.run(*line, "--model", "gpt-5", *words, "-o", "id").strip()


def test_a_file_written_by_the_real_codex(place: Place, api: Api) -> None:
    place.add_account(api.url("write"))
    id = enqueue(place)
    worker = place.worker("--accounts", "auto", "--once")
    assert worker.wait(SECONDS) == 0
    task = place.json("tasks", "get", id, "--with-files")
    assert task["status"] == "COMPLETED", place.log
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
    place.add_account(api.url("hang"))
    id = enqueue(place)
    worker = place.worker("--tools", "codex")
    wait_until(place.processes, "a running codex")
    worker.send_signal(signal.SIGKILL)
    worker.wait(SECONDS)
    wait_until(lambda: not place.processes(), "the end of all that codex had started")
    assert list(place.work_dir.glob("*.run")), "nothing was there to remove the workspace"
    place.run("accounts", "rm", "codex-main", "--yes")
    place.add_account(api.url("write"))
    second = place.worker("--tools", "codex")
    wait_until(lambda: place.json("tasks", "get", id)["status"] == "COMPLETED", "the end of the task")
    task = place.json("tasks", "get", id)
    assert len(task["runs"]) == 1
    assert list(place.work_dir.glob("*.run")) == []
    place.run("worker", "stop")
    assert second.wait(SECONDS) == 0


@pytest.mark.crash
def test_a_task_that_is_cancelled_leaves_no_process(place: Place, api: Api) -> None:
    place.add_account(api.url("hang"))
    id = enqueue(place)
    worker = place.worker("--tools", "codex")
    wait_until(place.processes, "a running codex")
    place.run("tasks", "cancel", id)
    wait_until(lambda: place.json("tasks", "get", id)["status"] == "CANCELLED", "the cancel")
    wait_until(lambda: not place.processes(), "the end of codex")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(SECONDS) == 0
    assert list(place.work_dir.glob("*.run")) == []
