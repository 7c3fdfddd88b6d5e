"""`perdure jobs export`."""

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAM, Done, Perdure


def jobs_in(text: str) -> list[str]:
    """The ids of the jobs that are whole in it, in order."""
    return [record["job_id"] for record in map(json.loads, text.splitlines()) if record["record"] == "end"]


class TestExport:
    """jobs export."""

    def test_lines_on_stdout(self, anywhere: Perdure) -> None:
        one, two = (anywhere.ran("greet", "--input", f'"{name}"') for name in ("ann", "bob"))
        done = anywhere("jobs", "export", two[-8:], one)
        assert jobs_in(done.out) == [two, one]
        assert jobs_in(anywhere("jobs", "export", "-", stdin=f"{one}\n").out) == [one]
        assert jobs_in(anywhere("jobs", "export", "--all", "-o", "jsonl", "--to", "-").out) == [two, one]
        assert jobs_in(anywhere("jobs", "export", "--kind", "greet", "--status", "completed").out) == [two, one]
        assert anywhere("jobs", "export", "--status", "failed").out == ""
        assert anywhere("jobs", "export", "--all", "-o", "none").out == ""

    def test_without_the_words(self, anywhere: Perdure) -> None:
        id = anywhere.ran("greet", "--input", '"sesame"')
        assert "sesame" in anywhere("jobs", "export", id).out
        redacted = anywhere("jobs", "export", id, "--redact").out
        assert "sesame" not in redacted
        assert json.loads(redacted.splitlines()[0])["payload"] == "[redacted]"

    def test_nothing_in_it_drives_the_terminal(self, perdure: Perdure) -> None:
        id = perdure.start("greet", "--input", '"\\u009b2J \\u202e \\u001b[2J"')
        out = perdure("jobs", "export", id).out
        assert all(ord(c) >= 32 or c == "\n" for c in out)
        assert not set(out) & set("\x9b\u202e")
        assert json.loads(out.splitlines()[0])["payload"] == "\x9b2J \u202e \x1b[2J"

    def test_into_a_file(self, anywhere: Perdure, place: Path) -> None:
        id = anywhere.ran("greet", "--input", '"ann"')
        done = anywhere("jobs", "export", id, "--to", "one.jsonl")
        assert (done.out, done.err) == ("", "1 job in one.jsonl\n")
        assert jobs_in((place / "one.jsonl").read_text()) == [id]
        assert (place / "one.jsonl").stat().st_mode & 0o077 == 0
        anywhere.start("naps")
        facts = anywhere("jobs", "export", "--all", "--to", "all.jsonl.gz", "--json").json
        assert facts["items"] == [{"file": "all.jsonl.gz", "jobs": 2}]
        assert len(jobs_in(gzip.decompress((place / "all.jsonl.gz").read_bytes()).decode())) == 2
        assert "Overwrite one.jsonl?" in anywhere("jobs", "export", "--all", "--to", "one.jsonl", code=2).err
        assert jobs_in((place / "one.jsonl").read_text()) == [id]
        anywhere("jobs", "export", "--all", "--to", "one.jsonl", "-y")
        assert len(jobs_in((place / "one.jsonl").read_text())) == 2

    def test_a_failure_leaves_no_half_file(self, perdure: Perdure, place: Path) -> None:
        id = perdure.ran("greet", "--input", '"ann"')
        before = sorted(place.iterdir())
        perdure("jobs", "export", id, "ffffffff", "--to", "one.jsonl", code=3)
        assert sorted(place.iterdir()) == before
        assert "is a directory" in perdure("jobs", "export", id, "--to", ".", code=2).err
        assert "there is no directory no" in perdure("jobs", "export", id, "--to", "no/such.jsonl", code=2).err

    @pytest.mark.parametrize(
        ("args", "says"),
        [
            ((), "which jobs?"),
            (("43149ff1", "--all"), "which jobs?"),
            (("43149ff1", "--kind", "x"), "which jobs?"),
            (("--all", "--status", "failed"), "which jobs?"),
            (("--all", "-o", "json"), "JSON lines"),
            (("--all", "-o", "id"), "JSON lines"),
            (("--status", "nope"), "unknown status"),
        ],
        ids=str,
    )
    def test_what_makes_no_sense(self, perdure: Perdure, args: tuple[str, ...], says: str) -> None:
        assert says in perdure("jobs", "export", *args, code=2).err

    def test_a_reader_that_goes_away(self, perdure: Perdure) -> None:
        perdure.start("research", "--input", json.dumps({"topic": "x" * 200_000}))
        with subprocess.Popen(
            [*PROGRAM, "jobs", "export", "--all"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
        ) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            running.stdout.close()
            done = Done(running.wait(60), "", running.stderr.read().decode())
        assert (done.code, done.err) == (141, "")


class TestReplay:
    """jobs replay."""

    def test_a_job_and_a_file_replay_and_what_differs_is_named(self, anywhere: Perdure, place: Path) -> None:
        id = anywhere.ran("research", "--input", '{"topic": "tea"}')
        anywhere("jobs", "export", id, "--to", "tea.jsonl")
        for which in (id[-8:], "tea.jsonl"):
            done = anywhere("jobs", "replay", which, "--app", "agents:app")
            assert f"{id[-8:]} research: 2 steps answered from the record; COMPLETED, as recorded" in done.out
        part = anywhere("jobs", "replay", "tea.jsonl", "--to", "read 1", "--app", "agents:app", "--json").json
        assert (part["reached"], part["steps"], part["result"]) == ("read 1", 1, None)
        assert "print" in anywhere("jobs", "replay", id, "--to", "print", "--app", "agents:app", code=3).err

        agents = place / "agents.py"
        agents.write_text(agents.read_text().replace('f"read {n}"', 'f"look {n}"'))
        differs = anywhere("jobs", "replay", "tea.jsonl", "--app", "agents:app", code=1).err
        assert (
            "comes to step 'look 0', which the record does not have; the record goes on with step 'read 0'" in differs
        )
        assert "which handlers?" in anywhere("jobs", "replay", id, code=2).err
