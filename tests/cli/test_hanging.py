"""Real workers whose handlers hang: they end at the second signal, and are replaced when too many calls hang."""

import json
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import Perdure, line_of, spawned
from tests.cli.test_metrics import get
from tests.cli.test_worker import until

STUCK = """
    import asyncio
    import os
    import threading
    import time
    from perdure import App, BlockingContext, JobContext

    app = App()

    @app.job(max_retries=0, timeout=0.2)
    def plain_in_time(ctx: BlockingContext) -> None:
        threading.Event().wait()

    @app.job
    def plain(ctx: BlockingContext) -> None:
        print("hanging", flush=True)
        threading.Event().wait()

    @app.job
    async def swallows(ctx: JobContext) -> None:
        print("hanging", flush=True)
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass

    @app.job
    async def blocks(ctx: JobContext) -> None:
        print("hanging", flush=True)
        time.sleep(3600)

    @app.job
    async def blocks_once(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            await asyncio.sleep(1)
            time.sleep(3600)

    @app.job
    async def is_debugged(ctx: JobContext) -> None:
        import pdb; pdb.set_trace()
        print("went on", flush=True)

    @app.job
    async def waits(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            await asyncio.sleep(3600)

    @app.job(max_retries=0)
    async def poison(ctx: JobContext) -> None:
        os._exit(1)

    @app.job
    async def starves(ctx: JobContext) -> None:
        waits = threading.Event().wait
        await asyncio.gather(*(ctx.options(key=str(n)).step("waits", waits) for n in range(20)))

    if __name__ == "__main__":
        app.run_worker()
"""
APP = ("--app", "stuck:app")


@pytest.fixture(autouse=True)
def stuck(place: Path) -> None:
    """The module of the app."""
    Path(place, "stuck.py").write_text(textwrap.dedent(STUCK))


def start(perdure: Perdure, kind: str) -> str:
    """Enqueue a job and return its id."""
    return perdure("jobs", "start", kind, *APP, "-o", "id").out.strip()


def job(perdure: Perdure, id: str) -> dict[str, object]:
    """What `jobs get` says."""
    found: dict[str, object] = perdure("jobs", "get", id, "--json").only
    return found


@pytest.mark.parametrize("kind", ["plain", "swallows"])
def test_two_signals_end_it_and_its_jobs_are_handed_back(perdure: Perdure, kind: str) -> None:
    id = start(perdure, kind)
    with spawned("worker", "start", *APP) as worker:
        assert "hanging" in line_of(worker.stdout)
        worker.send_signal(signal.SIGTERM)
        while "stopping; 1 running" not in line_of(worker.stderr):
            pass
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == 143
    found = job(perdure, id)
    assert (found["status"], found["retry_count"]) == ("RETRY", 0)


@pytest.mark.parametrize("how", ["worker start", "run_worker"])
def test_two_signals_end_it_while_its_event_loop_is_blocked(perdure: Perdure, how: str) -> None:
    id = start(perdure, "blocks")
    program = ["worker", "start", *APP]
    with spawned(*program) if how == "worker start" else _script() as worker:
        assert "hanging" in line_of(worker.stdout)
        worker.send_signal(signal.SIGINT)
        time.sleep(0.3)  # the system would make one signal of two that come at once
        worker.send_signal(signal.SIGINT)
        assert worker.wait(timeout=15) == 130
    found = job(perdure, id)
    assert (found["status"], found["retry_count"]) == ("RETRY", 0), "it was handed back"


def _script() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "stuck.py"],
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_process_in_which_too_many_calls_hang_ends(perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_GRACE", "0.2")
    monkeypatch.setenv("PERDURE_MAX_HUNG", "2")
    ids = [start(perdure, "plain_in_time") for _ in range(2)]
    with spawned("worker", "start", *APP) as worker:
        _, said = worker.communicate(timeout=30)
        assert worker.returncode == 11
    assert "too many calls hang in this process" in said
    assert {job(perdure, id)["error_kind"] for id in ids} == {"timeout"}


def test_such_a_process_is_replaced_by_its_supervisor(perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_GRACE", "0.2")
    monkeypatch.setenv("PERDURE_MAX_HUNG", "1")
    with spawned("worker", "start", *APP, "--processes", "2") as supervisor:

        def alive() -> set[str]:
            return {w["id"] for w in perdure("worker", "status", "--json").json["items"] if w["alive"]}

        until(lambda: len(alive()) == 2)
        before = alive()
        start(perdure, "plain_in_time")
        until(lambda: len(alive() - before) == 1)
        supervisor.send_signal(signal.SIGTERM)
        _, said = supervisor.communicate(timeout=30)
    assert "ended with exit code 11; another one starts" in said


def test_jobs_that_end_their_process_do_not_end_the_supervisor(
    perdure: Perdure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_CONCURRENCY", "1")
    for _ in range(14):
        start(perdure, "poison")
    with spawned("worker", "start", *APP, "--processes", "2") as supervisor:
        replaced = 0
        while replaced < 13:
            line = line_of(supervisor.stderr)
            assert line, "it has ended"
            replaced += "ended with exit code 1; another one starts in 1 s" in line
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(timeout=30) == 0


def test_a_process_whose_event_loop_is_blocked_for_too_long_ends(
    anywhere: Perdure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job that blocks it uses a retry; the others are handed back, and another process runs them."""
    monkeypatch.setenv("PERDURE_MAX_BLOCKED", "3")
    monkeypatch.setenv("PERDURE_LEASE", "2")
    other, blocking = start(anywhere, "waits"), start(anywhere, "blocks_once")
    with spawned("worker", "start", *APP, "--processes", "1", "--log-format", "json") as supervisor:
        until(lambda: {job(anywhere, id)["status"] for id in (other, blocking)} == {"COMPLETED"}, 60)
        seen = anywhere("worker", "status", "--stopped", "--json").json["items"]
        assert [(w["alive"], w["state"], w["blocked"]) for w in seen] == [(True, "RUNNING", 0), (False, "STOPPED", 1)]
        supervisor.send_signal(signal.SIGTERM)
        _, said = supervisor.communicate(timeout=30)
    [line] = [found for found in map(json.loads, said.splitlines()) if "blocked for too long" in found["event"]]
    assert line["job_id"] == blocking
    assert "worker process 1 ended with exit code 11; another one starts in 1 s" in said
    found = job(anywhere, blocking), job(anywhere, other)
    assert [(j["attempt"], j["retry_count"]) for j in found] == [(2, 1), (2, 0)]
    [run] = [e for e in anywhere("jobs", "events", blocking, "--json").json["items"] if e["new_status"] == "RETRY"]
    assert "blocked the event loop" in run["payload"]["error"]


def test_a_process_that_is_debugged_does_not_end(perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_MAX_BLOCKED", "1")
    monkeypatch.setenv("PERDURE_LEASE", "1")
    start(perdure, "is_debugged")
    with spawned("worker", "start", *APP, "-q", stdin=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdin is not None
        while "is_debugged" not in (line := line_of(worker.stdout)):
            assert line, "it has ended"
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(timeout=5)
        worker.stdin.write("continue\n")
        worker.stdin.flush()
        line_of(worker.stdout)  # the source
        assert line_of(worker.stdout) == "(Pdb) went on\n"


def test_hanging_calls_are_shown(perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_GRACE", "0.2")
    with spawned("worker", "start", *APP, "--log-format", "json", "--metrics-port", "0") as worker:
        url = str(json.loads(line_of(worker.stderr))["url"])
        start(perdure, "plain_in_time")
        until(lambda: "\nperdure_worker_hung_calls 1.0\n" in get(url)[2])
        until(lambda: [w["hung"] for w in perdure("worker", "status", "--json").json["items"]] == [1])
        assert "HUNG" in perdure("worker", "status").out


def test_a_worker_without_a_free_thread_is_not_ready(perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_CONCURRENCY", "8")
    with spawned("worker", "start", *APP, "--log-format", "json", "--metrics-port", "0") as worker:
        url = str(json.loads(line_of(worker.stderr))["url"])
        ready = url.replace("/metrics", "/readyz")
        until(lambda: get(ready)[0] == 200)
        start(perdure, "starves")
        until(lambda: get(ready)[0] == 503, seconds=30)
        assert "no thread is free" in get(ready)[2]
        assert get(url.replace("/metrics", "/healthz"))[0] == 200


def test_silent_clients_do_not_keep_a_probe_from_its_answer(perdure: Perdure) -> None:
    with spawned("worker", "start", *APP, "--log-format", "json", "--metrics-port", "0") as worker:
        url = str(json.loads(line_of(worker.stderr))["url"])
        parts = urlsplit(url)
        silent = [socket.create_connection((str(parts.hostname), parts.port or 0)) for _ in range(200)]
        for probe in ("healthz", "readyz"):
            assert get(url.replace("metrics", probe))[0] == 200
        for connection in silent:
            connection.close()
    del perdure
