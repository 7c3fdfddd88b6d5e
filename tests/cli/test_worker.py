"""`perdure worker`: real processes, signals, and operators."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Perdure, line_of, program, spawned

APP = ("--app", "agents:app")
GIVEN = {"greet": ("--input", '"ann"'), "breaks": (), "dies": (), "naps": (), "asks": ("--input", '"a draft"')}
"""Jobs of five ends."""


def until(true: Callable[[], object], seconds: float = 20) -> None:
    """Wait for something that is about to happen."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def alive(perdure: Perdure) -> list[str]:
    """The ids of the workers that run."""
    return [w["id"] for w in perdure("worker", "status", "--json").json["items"] if w["alive"]]


class TestStart:
    """worker start."""

    def test_runs_jobs_until_it_is_stopped(self, anywhere: Perdure) -> None:
        id = anywhere.start("greet", "--input", '"ann"')
        with spawned("worker", "start", *APP) as worker:
            assert "worker started" in line_of(worker.stderr)
            anywhere("jobs", "watch", id)
            worker.send_signal(signal.SIGTERM)
            _, report = worker.communicate(timeout=20)
            assert worker.returncode == 0
        assert "stopping; 0 running" in report
        assert "worker stopped" in report

    def test_once(self, anywhere: Perdure) -> None:
        ids = [anywhere.start("greet", "--input", '"ann"') for _ in range(3)]
        assert program("worker", "start", *APP, "--once", "-q") == program("version", "-o", "none")
        assert anywhere("jobs", "ls", "--status", "completed", "-o", "id").lines == ids[::-1]

    def test_a_second_signal_does_not_wait(self, perdure: Perdure) -> None:
        id = perdure.start("hangs")
        with spawned("worker", "start", *APP) as worker:
            assert "hanging" in line_of(worker.stdout)
            worker.send_signal(signal.SIGINT)
            while "stopping; 1 running" not in line_of(worker.stderr):
                pass
            worker.send_signal(signal.SIGINT)
            assert worker.wait(timeout=20) == 130
        job = perdure("jobs", "get", id, "--json").only
        assert (job["status"], job["retry_count"], job["note"]["reason"]) == ("RETRY", 0, "worker_stopped")

    @pytest.mark.parametrize(
        ("args", "says"),
        [
            ((), "no App is given"),
            (("--app", "empty:app"), "the App empty:app has no handlers"),
            (("--app", "nowhere:app"), "there is no module 'nowhere'"),
            ((*APP, "--concurrency", "0"), "concurrency (flag) is invalid: must be at least 1"),
            ((*APP, "--concurrency", "many"), "concurrency (flag) is invalid"),
            ((*APP, "--lease", "0.5s"), "lease (flag) is invalid: must be at least 1 second"),
            ((*APP, "--drain-timeout", "soon"), "drain_timeout (flag) is invalid"),
            ((*APP, "--queues", ","), "queues (flag) is invalid: needs at least one name"),
            ((*APP, "--queues", "a b"), "a queue's name"),
            ((*APP, "--processes", "0"), "must be at least 1"),
        ],
        ids=lambda v: " ".join(v) if isinstance(v, tuple) else "",
    )
    def test_what_makes_no_sense(
        self, perdure: Perdure, place: Path, args: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(place))  # no coding CLI is found
        (place / "empty.py").write_text("from perdure import App\napp = App()\n")
        assert says in perdure("worker", "start", *args, code=2).err

    def test_json_logs(self, place: Path) -> None:
        (place / "perdure.toml").write_text('log_format = "json"\n')
        lines = [json.loads(line) for line in program("worker", "start", *APP, "--once").err.splitlines()]
        assert [line["event"] for line in lines] == ["worker started", "worker stopped"]
        assert lines[0]["level"] == "info"

    @pytest.mark.parametrize("more", [(), ("--processes", "1")], ids=" ".join)
    def test_every_line_is_json_where_that_was_asked_for(self, perdure: Perdure, more: tuple[str, ...]) -> None:
        with spawned("worker", "start", *APP, "--log-format", "json", *more) as worker:
            until(lambda: alive(perdure))
            worker.send_signal(signal.SIGTERM)
            _, said = worker.communicate(timeout=20)
        events = [json.loads(line)["event"] for line in said.splitlines()]
        assert any(event.startswith("stopping") for event in events)
        assert "worker stopped" in events

    @pytest.mark.parametrize(
        ("args", "code", "says"),
        [
            ((*APP, "--db", "postgresql://ann:secret@127.0.0.1:1/x"), 10, "store-unreachable"),
            (("--app", "nowhere:app"), 2, "app-not-found"),
            (("--app", "broken:app"), 2, "app-not-found"),
            ((*APP, "--db", "sqlite:///agents.py"), 1, "store-error"),
            ((*APP, "--processes", "0"), 2, "usage"),
            ((*APP, "--nonsense"), 2, "usage"),
            ((*APP, "--lease", "0"), 2, "malformed-setting"),
            ((), 2, "usage"),
        ],
        ids=lambda v: " ".join(v) if isinstance(v, tuple) else str(v),
    )
    @pytest.mark.parametrize("how", ["flag", "variable", "file"])
    def test_errors_are_lines_of_the_log(
        self,
        perdure: Perdure,
        place: Path,
        monkeypatch: pytest.MonkeyPatch,
        how: str,
        args: tuple[str, ...],
        code: int,
        says: str,
    ) -> None:
        monkeypatch.setenv("PATH", str(place))  # no coding CLI is found
        (place / "broken.py").write_text("1 / 0")
        if how == "variable":
            monkeypatch.setenv("PERDURE_LOG_FORMAT", "json")
        elif how == "file":
            (place / "perdure.toml").write_text('log_format = "json"')
        flag = ("--log-format", "json") if how == "flag" else ()
        done = perdure("worker", "start", *args, *flag, "-vv", code=code)
        [line] = [json.loads(line) for line in done.err.splitlines()]
        assert (line["level"], line["code"], line["exit_code"]) == ("error", says, code)
        assert line["exception"]
        assert "secret" not in done.err

    def test_warnings_are_lines_of_the_log(self, place: Path) -> None:
        (place / "noisy.py").write_text(
            "import threading, warnings\n"
            "from agents import app\n"
            "warnings.warn('early')\n"
            "@app.job\n"
            "def thread(ctx):\n"
            "    warnings.warn('late')\n"
            "    other = threading.Thread(target=lambda: 1 / 0)\n"
            "    other.start(); other.join()\n"
        )
        program("jobs", "start", "thread", "--app", "noisy:app")
        done = program("worker", "start", "--app", "noisy:app", "--once", "--log-format", "json")
        lines = [json.loads(line) for line in done.err.splitlines()]
        assert [line["level"] for line in lines] == ["warning", "info", "warning", "error", "info"]
        assert lines[0]["event"] == "early"
        assert "late" in lines[2]["event"]
        assert "ZeroDivisionError" in lines[3]["exception"]

    @pytest.mark.parametrize("format", ["text", "json"])
    def test_the_first_line_names_the_database(self, anywhere: Perdure, place: Path, format: str) -> None:
        said = program("worker", "start", *APP, "--once", "--log-format", format).err.splitlines()[0]
        url = os.environ["PERDURE_DATABASE_URL"]
        shown = re.sub(r"(//\w+):[^/@]+@", r"\1:***@", url)
        assert (f'"database": "{shown}"' if format == "json" else f"database={shown} ") in said

    def test_a_file_is_named_by_its_whole_path(self, place: Path) -> None:
        said = program("worker", "start", *APP, "--once", "--db", "sqlite:///own.db").err
        assert f"database=sqlite:///{place}/own.db " in said

    @pytest.mark.parametrize("more", [(), ("--processes", "1")], ids=" ".join)
    def test_log_of_jobs(self, anywhere: Perdure, more: tuple[str, ...]) -> None:
        ids = {kind: anywhere.start(kind, *given) for kind, given in GIVEN.items()}
        done = program("worker", "start", *APP, "--once", "--log-jobs", "--log-format", "json", *more)
        lines = [json.loads(line) for line in done.err.splitlines()]
        ends = {line["kind"]: line for line in lines if line["event"] == "attempt ended"}
        assert {kind: (end["job_id"], end["status"], end["attempt"]) for kind, end in ends.items()} == {
            "greet": (ids["greet"], "COMPLETED", 1),
            "breaks": (ids["breaks"], "RETRY", 1),
            "dies": (ids["dies"], "DEADLETTER", 1),
            "naps": (ids["naps"], "PARKED", 1),
            "asks": (ids["asks"], "WAITING_FOR_APPROVAL", 1),
        }
        assert all(0 <= end["seconds"] < 20 and end["worker"].startswith("w-") for end in ends.values())

    def test_no_log_of_jobs_unless_it_is_asked_for(self, perdure: Perdure) -> None:
        perdure.start("greet", "--input", '"ann"')
        assert "attempt ended" not in program("worker", "start", *APP, "--once").err

    @pytest.mark.parametrize("how", ["flag", "variable", "file"])
    def test_all_queues(self, anywhere: Perdure, place: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
        """The flag also where a variable and a file say otherwise."""
        (place / "perdure.toml").write_text(f"queues = {['*'] if how == 'file' else ['x']}".replace("'", '"'))
        if how != "file":
            monkeypatch.setenv("PERDURE_QUEUES", "*" if how == "variable" else "y")
        for queue in ("default", "slow", "x", "z"):
            anywhere.start("greet", "--input", '"ann"', "--queue", queue)
        program("worker", "start", *APP, "--once", *(["--queues", "*"] if how == "flag" else []))
        assert anywhere("jobs", "count", "--json").json == {"COMPLETED": 4}

    def test_a_worker_of_all_queues_is_known_as_one(self, anywhere: Perdure) -> None:
        id = anywhere.start("greet", "--input", '"ann"', "--queue", "slow", "--delay", "1h")
        with spawned("worker", "start", *APP, "--queues", "*"):
            until(lambda: alive(anywhere))
            assert "no live worker" not in anywhere("jobs", "explain", id).out
            assert "1 alive on all queues" in anywhere("doctor", code=None).out

    def test_one_supervised_process_is_replaced(self, perdure: Perdure) -> None:
        with spawned("worker", "start", *APP, "--processes", "1") as supervisor:
            until(lambda: len(alive(perdure)) == 1)
            [first] = [w for w in perdure("worker", "status", "--json").json["items"] if w["alive"]]
            os.kill(first["pid"], signal.SIGKILL)
            until(lambda: any(id != first["id"] for id in alive(perdure)))
            supervisor.send_signal(signal.SIGTERM)
            assert supervisor.wait(timeout=20) == 0

    def test_the_database_does_not_answer(self, perdure: Perdure) -> None:
        done = perdure("worker", "start", *APP, "--db", "postgresql://nobody@127.0.0.1:1/x", code=10)
        assert "[perdure help store-unreachable]" in done.err


class TestOperators:
    """worker status, stop, drain."""

    def test_status(self, anywhere: Perdure) -> None:
        assert "no worker runs; start one" in anywhere("worker", "status").err
        anywhere.start("hangs")
        with spawned("worker", "start", *APP, "--concurrency", "3") as worker:
            assert "hanging" in line_of(worker.stdout)
            lines = anywhere("worker", "status").lines
            assert lines[0].split()[:6] == ["STATE", "WORKER", "HELD", "SLOTS", "HUNG", "BLOCKED"]
            assert lines[1].startswith("● running  w-")
            assert "1/3" in lines[1]
            seen = anywhere("worker", "status", "--json").json["items"][0]
            assert (seen["alive"], seen["held"], seen["pid"], seen["queues"]) == (True, 1, worker.pid, ["default"])
            assert anywhere("worker", "ls", "-o", "id").out.strip() == seen["id"]

    @pytest.mark.parametrize("args", [("stop",), ("stop", "ID", "--now"), ("drain", "--all")], ids=" ".join)
    def test_stopping(self, perdure: Perdure, args: tuple[str, ...]) -> None:
        with spawned("worker", "start", *APP) as worker:
            assert "worker started" in line_of(worker.stderr)
            [id] = alive(perdure)
            done = perdure("worker", *(id[-6:] if a == "ID" else a for a in args))
            assert done.out.startswith("asked ")
            assert worker.wait(timeout=20) == 0
        assert alive(perdure) == []
        assert "○ stopped" in perdure("worker", "status", "--stopped").out

    @pytest.mark.parametrize("args", [(), ("--all",)], ids=" ".join)
    def test_all_of_this_host_are_stopped(self, perdure: Perdure, args: tuple[str, ...]) -> None:
        with spawned("worker", "start", *APP) as a, spawned("worker", "start", *APP, "--processes", "1") as b:
            until(lambda: len(alive(perdure)) == 2)
            asked = perdure("worker", "stop", *args, "--json").json["items"]
            assert [w["command"] for w in asked] == ["stop", "stop"]
            assert (a.wait(timeout=20), b.wait(timeout=20)) == (0, 0)

    def test_those_of_other_hosts_are_left_alone(self, perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
        with spawned("worker", "start", *APP):
            until(lambda: len(alive(perdure)) == 1)
            monkeypatch.setattr("perdure.cli.worker.socket.gethostname", lambda: "elsewhere")
            assert "no worker runs on host 'elsewhere'; 1 on other hosts" in perdure("worker", "stop", code=1).err
            assert "no worker runs on host 'elsewhere'" in perdure("worker", "drain", code=1).err

    def test_no_worker_to_stop(self, perdure: Perdure) -> None:
        perdure("jobs", "start", "x")
        assert "[perdure help no-worker]" in perdure("worker", "stop", code=1).err
        assert "no worker runs" in perdure("worker", "stop", "--all").err
        assert "[perdure help worker-not-found]" in perdure("worker", "stop", "w-0000000000", code=3).err
        assert "not both" in perdure("worker", "drain", "w-0000000000", "--all", code=2).err


class TestProcesses:
    """worker start --processes N."""

    def test_a_child_that_dies_is_replaced_and_all_stop_together(self, perdure: Perdure) -> None:
        with spawned("worker", "start", *APP, "--processes", "2") as supervisor:
            until(lambda: len(alive(perdure)) == 2)
            victim = perdure("worker", "status", "--json").json["items"][0]
            os.kill(victim["pid"], signal.SIGKILL)
            until(lambda: len(set(alive(perdure)) - {victim["id"]}) == 2)
            supervisor.send_signal(signal.SIGTERM)
            _, report = supervisor.communicate(timeout=20)
            assert supervisor.returncode == 0
        assert "was killed by SIGKILL; another one starts" in report
        until(lambda: set(alive(perdure)) <= {victim["id"]})

    def test_children_do_not_outlive_a_supervisor_that_is_killed(self, perdure: Perdure) -> None:
        with spawned("worker", "start", *APP, "--processes", "2", stderr=subprocess.DEVNULL) as supervisor:
            until(lambda: len(alive(perdure)) == 2)
            supervisor.kill()
            until(lambda: alive(perdure) == [])

    def test_what_cannot_start_is_not_started_for_ever(self, place: Path) -> None:
        done = program("worker", "start", *APP, "--processes", "2", "--db", "mysql://x")
        assert done.code == 2
        assert "it is not started again" in done.err

    def test_once(self, perdure: Perdure) -> None:
        perdure.start("greet", "--input", '"ann"')
        assert program("worker", "start", *APP, "--processes", "2", "--once", "-q").code == 0
        assert perdure("jobs", "count", "--json").json == {"COMPLETED": 1}
