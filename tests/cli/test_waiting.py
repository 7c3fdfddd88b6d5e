"""Waiting for jobs: `jobs start --wait`, `--follow`, `jobs watch`, and every exit code that can come of it."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from perdure.sync import Client
from tests.cli.conftest import Done, Perdure, line_of, program, spawned

APP = ("--app", "agents:app")


@contextmanager
def a_worker() -> Iterator[None]:
    """A worker of `agents:app` in a process of its own, while the block runs."""
    with spawned("worker", "start", *APP) as worker:
        assert "worker started" in line_of(worker.stderr)
        yield
        worker.terminate()
        worker.communicate(timeout=20)


class TestWait:
    """jobs start --wait."""

    def test_prints_the_result(self, anywhere: Perdure) -> None:
        anywhere("jobs", "count")
        with a_worker():
            done = anywhere("jobs", "start", "greet", *APP, "--input", '"ann"', "--wait=20s")
            assert done.lines[-1] == '"hello ann"'
            assert [line.split()[2] for line in done.err.splitlines()] == ["PENDING", "RUNNING", "COMPLETED"]
            done = anywhere("jobs", "start", "greet", *APP, "--input", '"bob"', "--wait", "20s", "--json")
            assert (done.json["status"], done.json["result"], done.err) == ("COMPLETED", "hello bob", "")
            done = anywhere("jobs", "start", "greet", *APP, "--input", '"eve"', "--follow", "-o", "id")
            assert len(done.lines) == 1
            assert "node_finished       say" in done.err

    def test_a_job_that_ends_badly(self, perdure: Perdure) -> None:
        with a_worker():
            failed = perdure("jobs", "start", "fails", *APP, "--wait", code=6)
            assert "is FAILED: no such account" in failed.err
            assert f"perdure jobs rerun {failed.out.strip()[-8:]}" in failed.err
            dead = perdure("jobs", "start", "dies", *APP, "--wait", "--json", code=6)
            assert dead.json["status"] == "DEADLETTER"
            assert json.loads(dead.err)["code"] == "job-failed"

    def test_a_job_that_is_denied_or_cancelled(self, perdure: Perdure) -> None:
        with a_worker():
            id = perdure(
                "jobs", "start", "asks", *APP, "--input", '"x"', "--wait", "--stop-on-approval", code=9
            ).out.strip()
            perdure("approvals", "deny", id, "--reason", "no")
            assert "was denied" in perdure("jobs", "watch", id, code=7).out
            id = perdure(
                "jobs", "start", "asks", *APP, "--input", '"x"', "--follow", "--stop-on-approval", code=9
            ).out.strip()
            perdure("jobs", "cancel", id, "--reason", "late")
            assert "⊘ CANCELLED" in perdure("jobs", "watch", id, code=7).out

    def test_stopping_at_an_approval_says_how_to_decide(self, perdure: Perdure) -> None:
        with a_worker():
            done = perdure("jobs", "start", "asks", *APP, "--input", '"x"', "--wait=20s", "--stop-on-approval", code=9)
        approval = perdure("approvals", "ls", "-o", "id").out.strip()
        assert "Publish this?" in done.err
        assert f"perdure approvals approve {approval[-8:]}" in done.err
        assert "[perdure help approval-needed]" in done.err

    def test_the_time_is_up(self, perdure: Perdure) -> None:
        done = perdure("jobs", "start", "x", "--wait=0.1s", code=8)
        assert "is still PENDING after 0.1 s. It is kept, not cancelled" in done.err
        assert f"perdure jobs explain {done.out.strip()[-8:]}" in done.err
        assert f"perdure jobs watch {done.out.strip()[-8:]}" in done.err
        assert perdure("jobs", "count", "--json").json == {"PENDING": 1}


def test_no_worker_to_start_it(perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.cli.watch.WORKER_WAIT", 0.0)
    done = perdure("jobs", "start", "x", "--queue", "slow", "--wait=0.5s", code=8)
    assert "no worker serves queue 'slow'; start one: perdure worker start --app module:attr --queues slow" in done.err


def later(act: Callable[[Client], object]) -> threading.Timer:
    """Do something to the database in a moment, from another thread."""

    def run() -> None:
        with Client("sqlite:///perdure.db") as client:
            act(client)

    timer = threading.Timer(0.3, run)
    timer.start()
    return timer


class TestWatch:
    """jobs watch."""

    def test_a_line_per_change_of_state(self, perdure: Perdure) -> None:
        id = perdure.start("naps")
        timer = later(lambda client: client.jobs.cancel(id, "because"))
        done = perdure("jobs", "watch", id, code=7)
        timer.join()
        assert [line.split()[2] for line in done.lines] == ["PENDING", "CANCELLED"]
        assert done.lines[-1].endswith("because")

    def test_the_worst_outcome_is_the_exit_code(self, perdure: Perdure) -> None:
        good = perdure.ran("greet", "--input", '"ann"')
        bad = perdure.ran("fails")
        cancelled = perdure.start("naps")
        perdure("jobs", "cancel", cancelled)
        assert "✓ COMPLETED" in perdure("jobs", "watch", good).out
        perdure("jobs", "watch", good, cancelled, code=7)
        perdure("jobs", "watch", good, cancelled, bad, code=6)

    def test_timeout(self, perdure: Perdure) -> None:
        id = perdure.start("naps")
        done = perdure("jobs", "watch", id, "--timeout", "0.1s", code=8)
        assert "one job is not finished" in done.err

    def test_filters(self, perdure: Perdure) -> None:
        perdure.ran("fails")
        assert "nothing to watch" in perdure("jobs", "watch").err
        naps, other = perdure.start("naps"), perdure.start("greet", "--input", '"ann"')
        done = perdure("jobs", "watch", "--kind", "naps", "--timeout", "0.1s", "-o", "id", code=8)
        assert done.lines == [naps]
        assert perdure("jobs", "watch", "--timeout", "0.1s", "-o", "id", code=8).lines == [other, naps]
        assert "not both" in perdure("jobs", "watch", naps, "--kind", "naps", code=2).err
        perdure("jobs", "watch", "aaaaaaaa", code=3)

    def test_json(self, perdure: Perdure) -> None:
        id = perdure.ran("greet", "--input", '"ann"')
        assert perdure("jobs", "watch", id, "--json").json["items"][0]["result"] == "hello ann"
        naps = perdure.start("naps")
        timer = later(lambda client: client.jobs.cancel(naps))
        lines = [json.loads(line) for line in perdure("jobs", "watch", naps, "-o", "jsonl", code=7).lines]
        timer.join()
        assert [e["new_status"] for e in lines] == ["PENDING", "CANCELLED"]


class TestSignals:
    """Ctrl-C while waiting leaves the job alone."""

    @pytest.mark.parametrize(("name", "code"), [("INT", 130), ("TERM", 143)])
    def test_exit_code(self, name: str, code: int) -> None:
        with spawned("jobs", "start", "x", "--wait") as waiting:
            id = line_of(waiting.stdout).strip()
            assert "PENDING" in line_of(waiting.stderr)
            waiting.send_signal(signal.Signals[f"SIG{name}"])
            _, report = waiting.communicate(timeout=20)
            assert waiting.returncode == code
        assert f"the job goes on: perdure jobs watch {id[-8:]}" in report
        assert program("jobs", "get", id, "--fields", "status").out == "PENDING\n"

    def test_the_reader_closes_the_pipe(self, perdure: Perdure) -> None:
        id = perdure.start("naps")
        with spawned("jobs", "events", id, "-f") as following:
            line_of(following.stdout)
            assert following.stdout is not None
            following.stdout.close()
            perdure("jobs", "cancel", id)
            assert following.wait(timeout=20) == 141
            assert following.stderr is not None
            assert following.stderr.read() == ""


def test_closed_streams_do_no_harm() -> None:
    shell = f"{sys.executable} -m perdure jobs start x >&- 2>&- <&-"
    assert subprocess.run(shell, shell=True, check=False).returncode == 0
    assert len(program("jobs", "ls", "-o", "id").out.split()) == 1


def test_done_is_what_it_says() -> None:
    assert Done(0, "a\nb\n", "").lines == ["a", "b"]
