"""`perdure jobs explain`: what it prints, and that the commands it prints can be typed."""

import shlex
import subprocess
import sys

from tests.cli.conftest import PROGRAM, Perdure, line_of, spawned
from tests.cli.test_jobs import NOWHERE


def moves(perdure: Perdure, id: str) -> list[str]:
    """The command lines that `explain` prints for people."""
    return [line.strip() for line in perdure("jobs", "explain", id).lines if line.startswith("    perdure ")]


def code(perdure: Perdure, id: str) -> str:
    return perdure("jobs", "explain", id, "--fields", "code").out.strip()


def typed(perdure: Perdure, line: str) -> None:
    """Type a command line as it was printed."""
    program, *args = shlex.split(line)
    assert program == "perdure"
    perdure(*args)


def test_a_job_without_a_worker(anywhere: Perdure) -> None:
    id = anywhere.start("greet", "--input", '"ann"', "--queue", "slow")
    page = anywhere("jobs", "explain", id[-8:]).out
    assert page.startswith(f"○ PENDING  greet  {id}\nIt has been due for ")
    assert "no live worker serves queue 'slow'." in page
    assert "  why                 no_worker\n" in page
    assert moves(anywhere, id) == ["perdure worker start --app module:attr --queues slow"]


def test_json(anywhere: Perdure) -> None:
    id = anywhere.start("naps", "--delay", "50h")
    found = anywhere("jobs", "explain", id, "--json").json
    assert (found["job_id"], found["kind"], found["queue"]) == (id, "naps", "default")
    assert (found["code"], found["status"]) == ("delayed", "PENDING")
    assert found["at"] < found["details"]["due_at"]
    assert found["moves"][0] == {"what": "run it now", "command": f"perdure jobs retry-now {id[-8:]}"}
    assert anywhere("jobs", "explain", id, "-o", "id").out.strip() == id
    assert code(anywhere, id) == "delayed"
    typed(anywhere, moves(anywhere, id)[0])
    assert code(anywhere, id) == "no_worker"


def test_a_question_and_its_answer(anywhere: Perdure) -> None:
    id = anywhere.ran("asks", "--input", '"a draft"')
    page = anywhere("jobs", "explain", id).out
    assert "It waits for a person: 'Publish this?' (approval …" in page
    assert "then the job fails" in page
    typed(anywhere, moves(anywhere, id)[0])
    assert "'publish' was approved by" in anywhere("jobs", "explain", id).out
    anywhere.work()
    assert code(anywhere, id) == "completed"
    typed(anywhere, moves(anywhere, id)[0])
    assert anywhere("jobs", "count", "--json").json == {"COMPLETED": 1, "PENDING": 1}


def test_a_question_for_a_person(perdure: Perdure) -> None:
    id = perdure.ran("asks_ann")
    assert [line.split(" --by ")[1] for line in moves(perdure, id)[:2]] == ["ann", "ann"]
    typed(perdure, moves(perdure, id)[0])
    perdure.work()
    assert code(perdure, id) == "completed"


def test_backoff_sleep_and_failure(perdure: Perdure) -> None:
    breaks, naps, fails = perdure.ran("breaks"), perdure.ran("naps"), perdure.ran("fails")
    page = perdure("jobs", "explain", breaks, "--time-format", "relative").out
    assert "Its last attempt failed: ValueError: empty source list" in page
    assert "Retry 1 of 1 is due at" in page
    assert "  due at              in 59m" in page
    assert "It sleeps: timer 'nap' ends at" in perdure("jobs", "explain", naps).out
    assert "It failed at" in perdure("jobs", "explain", fails).out
    assert moves(perdure, fails) == [f"perdure jobs rerun {fails[-8:]}"]


def test_running() -> None:
    """Held by a real worker process."""
    start = [*PROGRAM, "jobs", "start", "hangs", "--app", "agents:app", "-o", "id"]
    id = subprocess.run(start, capture_output=True, text=True, check=True).stdout.strip()
    with spawned("worker", "start", "--app", "agents:app") as worker:
        assert line_of(worker.stdout) == "hanging\n"
        explain = [sys.executable, "-m", "perdure", "jobs", "explain", id]
        page = subprocess.run(explain, capture_output=True, text=True, check=True).stdout
        assert "It is running, attempt 1, on worker w-" in page
        assert f"(process {worker.pid} on " in page


def test_the_database_it_was_asked_about_is_in_the_commands(perdure: Perdure) -> None:
    id = perdure("jobs", "start", "x", "--db", "sqlite:///other.db", "--tenant", "acme", "-o", "id").out.strip()
    line = "perdure worker start --app module:attr --db sqlite:///other.db --tenant acme"
    asked = ("jobs", "explain", id, "--db", "sqlite:///other.db", "--tenant", "acme")
    assert perdure(*asked).lines[-1].strip() == line
    assert [move["command"] for move in perdure(*asked, "-o", "json").json["moves"]] == [line]


def test_jobs_that_are_not_there(anywhere: Perdure) -> None:
    assert "[perdure help job-not-found]" in anywhere("jobs", "explain", NOWHERE, code=3).err
    assert "missing argument 'ID'" in anywhere("jobs", "explain", code=2).err
