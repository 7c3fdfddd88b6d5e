"""`perdure chaos`: its summary, its refusals, and that it changes nothing it was not asked to."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from perdure.chaos import harness
from perdure.chaos.report import Report
from tests.cli.conftest import Perdure


def test_a_run_and_its_summary(perdure: Perdure, place: Path) -> None:
    done = perdure("chaos", "--kills", "3", "--seed", "7", "--workers", "2")
    lines = dict(line.split(maxsplit=1) for line in done.lines)
    assert lines["seed"] == "7"
    assert lines["kills"] == "3 by SIGKILL"
    assert lines["faults"] == "0"
    assert "COMPLETED" in lines["jobs"]
    assert lines["note"] == "a SQLite file has no connections to cut and no server to restart"
    assert "seed 7: 3 kills on a temporary SQLite file" in done.err
    assert not (place / "perdure.db").exists()
    assert "\x1b" not in done.out + done.err


def test_the_same_as_json_on_any_database(anywhere: Perdure, tmp_path: Path) -> None:
    keep = ("--keep", "--directory", str(tmp_path))
    facts = anywhere("chaos", "--kills", "2", "--workers", "1", "--jobs", "15", "--json", *keep).json
    assert facts["ok"] is True
    assert (facts["kills"], facts["faults"]) == (2, [])
    assert 0 <= facts["seed"] < 1_000_000
    assert sum(facts["jobs"].values()) >= 15
    assert facts["attempts"] >= sum(facts["jobs"].values()) - facts["jobs"].get("CANCELLED", 0) > 0
    kept = anywhere("jobs", "ls", "--tenant", facts["tenant"], "--all", "-o", "jsonl")
    assert [json.loads(line)["kind"].startswith("chaos.") for line in kept.lines].count(False) == 0
    assert len(kept.lines) == sum(facts["jobs"].values())
    assert Path(facts["kept_in"], "effects").exists()
    assert Path(facts["kept_in"]).parent == tmp_path.resolve()
    assert anywhere("chaos", "--kills", "1", "--workers", "1", "-o", "id").out.strip().isdigit(), (
        "chaos may follow chaos"
    )


def test_url_is_another_word_for_db(perdure: Perdure, tmp_path: Path) -> None:
    id = perdure("jobs", "start", "naps", "--app", "agents:app", "-o", "id", "--url", f"sqlite:///{tmp_path}/u.db").out
    assert perdure("jobs", "ls", "-o", "id", "--db", f"sqlite:///{tmp_path}/u.db").out == id


def test_a_database_with_real_jobs_is_refused(anywhere: Perdure) -> None:
    id = anywhere.start("naps")
    before = anywhere("jobs", "events", id, "--json").out
    done = anywhere("chaos", "--kills", "1", code=5)
    assert "this database holds jobs that chaos did not make: 'naps'. Nothing was changed" in done.err
    assert "--allow-real-jobs" in done.err
    assert done.err.rstrip().endswith("[perdure help real-jobs]")
    assert done.out == ""
    assert json.loads(anywhere("chaos", "--kills", "1", "--yes", "--json", code=5).err)["code"] == "real-jobs"
    facts = anywhere("chaos", "--kills", "2", "--workers", "1", "--allow-real-jobs", "--json").json
    assert facts["ok"] is True
    assert anywhere("jobs", "events", id, "--json").out == before
    assert anywhere("jobs", "ls", "-o", "id").lines == [id]


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("--kills", "0"), 2, "must be at least 1"),
        (("--workers", "65"), 2, "64"),
        (("--seed", "x"), 2, "must be a whole number"),
        (("--jobs", "-1"), 2, "must be at least 0"),
        (("--tenant", "mine"), 2, "chaos makes a tenant of its own"),
        (("--url", "memory:"), 2, "memory: lives in one process, and chaos needs several"),
        (("--url", "mysql://x"), 2, "is not a database URL"),
        (("--url", "sqlite:////nowhere/at/all.db"), 10, "does not exist"),
        (("--url", "postgresql://nobody@127.0.0.1:1/x"), 10, "cannot be reached"),
        (("--directory", "agents.py"), 1, "no directory for the effects and the logs"),
    ],
)
def test_what_it_cannot_do(perdure: Perdure, args: tuple[str, ...], code: int, says: str) -> None:
    done = perdure("chaos", *args, code=code)
    assert says in done.err
    assert done.out == ""


def test_a_restart_command_that_fails_is_reported(perdure: Perdure, postgres_url: str, tmp_path: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -c 'import sys; sys.exit(\"no such server\")'"
    args = ("--kills", "3", "--restart-command", command, "--directory", str(tmp_path))
    done = perdure("chaos", "--url", postgres_url, *args, code=1)
    assert "the restart command ended with exit code 1: no such server" in done.err
    assert command in done.err
    assert f"effects and logs in {tmp_path.resolve()}/perdure-chaos-" in done.err


def test_a_restart_command_is_run(perdure: Perdure, postgres_url: str, place: Path) -> None:
    done = perdure("chaos", "--url", postgres_url, "--kills", "3", "--restart-command", "touch restarted", "--json")
    assert done.json["restarts"] == 1
    assert (place / "restarted").exists()


def test_a_restart_outlasts_the_kills(perdure: Perdure, postgres_url: str, place: Path) -> None:
    slow = "touch begun && sleep 5 && touch ended"
    done = perdure("chaos", "--url", postgres_url, "--kills", "3", "--restart-command", slow, "--json")
    assert done.json["restarts"] == 1
    assert (place / "begun").exists()
    assert (place / "ended").exists()


def test_faults_are_reported_line_by_line(perdure: Perdure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def never_content(*given: object) -> None:
        report = given[2]
        assert isinstance(report, Report)
        report.faults += ["job 1: it is\nstuck", "job 2: \x1b[31mlost"]

    monkeypatch.setattr(harness, "prove", never_content)
    done = perdure("chaos", "--kills", "1", "--workers", "1", "--directory", str(tmp_path), code=1)
    assert done.lines[-2:] == ["fault: job 1: it is stuck", "fault: job 2: \\x1b[31mlost"]
    assert "faults     2" in done.lines
    (kept,) = (line for line in done.lines if line.startswith("kept"))
    assert str(tmp_path) in kept
