"""The same data in every mode: tables, JSON, lines, ids."""

import json
import re
from datetime import datetime

import pytest

from perdure.cli import job_table as jobtable
from perdure.cli.format import short
from perdure.cli.output import Column, Output, jsonable, laid_out, status_cell
from perdure.model.ids import uuid7
from perdure.model.states import Status
from tests.cli.conftest import Perdure, a_job, program

ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def ids(perdure: Perdure) -> list[str]:
    """Three jobs, newest first."""
    return [perdure.start("naps", "--goal", f"job {n}", "--key", f"key {n}") for n in range(3)][::-1]


class TestModes:
    """One list, printed in each way."""

    def test_table(self, perdure: Perdure, ids: list[str]) -> None:
        lines = perdure("jobs", "ls").lines
        assert lines[0].split() == ["STATUS", "JOB", "KIND", "ATTEMPTS", "CREATED", "LAST"]
        assert [line.split()[2] for line in lines[1:]] == ["…" + id[-8:] for id in ids]
        assert "○ PENDING" in lines[1]
        assert all(line == line.rstrip() for line in lines)

    def test_wide(self, perdure: Perdure, ids: list[str]) -> None:
        lines = perdure("jobs", "ls", "-o", "wide").lines
        assert "QUEUE" in lines[0]
        assert ids[0] in lines[1]
        assert "key 2" in lines[1]

    def test_json(self, perdure: Perdure, ids: list[str]) -> None:
        page = perdure("jobs", "ls", "--json", "--limit", "2").json
        assert [job["id"] for job in page["items"]] == ids[:2]
        assert perdure("jobs", "ls", "--json", "--cursor", page["next_cursor"]).json["items"][0]["id"] == ids[2]
        job = page["items"][0]
        assert (job["status"], job["goal"], job["waits"], job["state"]["tokens"]) == ("PENDING", "job 2", [], 0)
        assert job["created_at"].endswith("Z")

    def test_jsonl(self, perdure: Perdure, ids: list[str]) -> None:
        lines = perdure("jobs", "ls", "-o", "jsonl", "--all").lines
        assert [json.loads(line)["id"] for line in lines] == ids

    def test_json_is_json_where_the_encoding_lacks_characters(
        self, perdure: Perdure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        perdure.start("naps", "--goal", "é 漢 😀")
        monkeypatch.setenv("PYTHONIOENCODING", "ascii")
        assert json.loads(program("jobs", "ls", "-o", "jsonl").out)["goal"] == "é 漢 😀"

    def test_ids(self, perdure: Perdure, ids: list[str]) -> None:
        assert perdure("jobs", "ls", "-o", "id").lines == ids

    def test_none(self, perdure: Perdure, ids: list[str]) -> None:
        assert perdure("jobs", "ls", "-o", "none").out == ""

    def test_by_variable(self, perdure: Perdure, ids: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PERDURE_OUTPUT", "id")
        assert perdure("jobs", "ls").lines == ids
        assert perdure("jobs", "ls", "--json").json["items"]


class TestFields:
    """--fields."""

    def test_of_a_table(self, perdure: Perdure, ids: list[str]) -> None:
        lines = perdure("jobs", "ls", "--fields", "kind,goal,state.tokens").lines
        assert lines[0].split() == ["KIND", "GOAL", "STATE.TOKENS"]
        assert lines[1].split() == ["naps", "job", "2", "0"]

    def test_of_json(self, perdure: Perdure, ids: list[str]) -> None:
        items = perdure("jobs", "ls", "--json", "--fields", "kind,state.tokens").json["items"]
        assert items[0] == {"kind": "naps", "state.tokens": 0}

    def test_of_one(self, perdure: Perdure, ids: list[str]) -> None:
        assert perdure("jobs", "get", ids[0], "--fields", "kind,status,goal").lines == ["naps", "PENDING", "job 2"]
        assert perdure("jobs", "get", ids[0], "--json", "--fields", "kind").only == {"kind": "naps"}

    @pytest.mark.parametrize("mode", ["table", "json", "jsonl"])
    def test_unknown(self, perdure: Perdure, ids: list[str], mode: str) -> None:
        assert "there is no field 'colour'" in perdure("jobs", "ls", "-o", mode, "--fields", "id,colour", code=2).err

    def test_empty(self, perdure: Perdure) -> None:
        assert "at least one name" in perdure("jobs", "ls", "--fields", ",", code=2).err


class TestTimes:
    """--time-format."""

    def test_iso_where_there_is_no_terminal(self, perdure: Perdure, ids: list[str]) -> None:
        assert re.search(r" 20\d\d-\d\d-\d\dT[\d:.]+Z ", perdure("jobs", "ls").lines[1])

    def test_relative(self, perdure: Perdure, ids: list[str]) -> None:
        lines = perdure("jobs", "ls", "--time-format", "relative").lines
        assert "AGE" in lines[0]
        assert re.search(r" (now|\ds) ", lines[1])

    def test_epoch(self, perdure: Perdure, ids: list[str]) -> None:
        job = perdure("jobs", "ls", "--json", "--time-format", "epoch").json["items"][0]
        assert abs(job["created_at"] - datetime.now().astimezone().timestamp()) < 60


class TestMessages:
    """Data on stdout, messages on stderr."""

    def test_quiet(self, perdure: Perdure) -> None:
        assert "watch it: perdure jobs watch" in perdure("jobs", "start", "x").err
        assert perdure("jobs", "start", "x", "-q").err == ""

    def test_where_more_is(self, perdure: Perdure, ids: list[str]) -> None:
        done = perdure("jobs", "ls", "--limit", "1")
        assert f"more with --all, or --cursor {ids[0]}" in done.err
        assert perdure("jobs", "ls", "--all").err == ""

    def test_programs_get_no_chatter(self, perdure: Perdure, ids: list[str]) -> None:
        assert perdure("jobs", "start", "x", "--json").err == ""
        assert perdure("jobs", "ls", "-o", "jsonl", "--limit", "1").err == ""
        warning = perdure("jobs", "ls", "--json", "--db", "memory:").err
        assert "lost at its end" in json.loads(warning)["warning"]

    def test_next_commands_stay_on_the_same_database(self, perdure: Perdure) -> None:
        done = perdure("jobs", "start", "x", "--db", "sqlite:///an other.db", "--tenant", "acme")
        assert done.err.rstrip().endswith("--db 'sqlite:///an other.db' --tenant acme")


class TestColour:
    """--color, NO_COLOR, FORCE_COLOR."""

    def test_off_where_there_is_no_terminal(self, perdure: Perdure, ids: list[str]) -> None:
        assert "\x1b" not in perdure("jobs", "ls").out

    def test_always(self, perdure: Perdure, ids: list[str]) -> None:
        plain, coloured = perdure("jobs", "ls").out, perdure("jobs", "ls", "--color", "always").out
        assert "\x1b[1m" in coloured
        assert [line.rstrip() for line in ANSI.sub("", coloured).splitlines()] == plain.splitlines()

    def test_variables(self, perdure: Perdure, ids: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert "\x1b" in perdure("jobs", "ls").out
        assert "\x1b" not in perdure("jobs", "ls", "--color", "never").out
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b" not in perdure("jobs", "ls").out


TABLE: list[Column[tuple[str, str]]] = [
    Column("name", lambda r: r[0], flexible=True),
    Column("size", lambda r: r[1], right=True),
    Column("what", lambda r: "word " * 20, flexible=True),
]
ROWS = [("a" * 60, "1"), ("中文" * 20, "1000")]


class TestLayout:
    """Tables fit the terminal and never wrap."""

    @pytest.mark.parametrize("width", [30, 60, 100])
    def test_flexible_columns_are_cut(self, width: int) -> None:
        from rich.cells import cell_len

        lines = laid_out([[c.cell(r) for c in TABLE] for r in ROWS], TABLE, width).plain.split("\n")
        assert len(lines) == 3
        assert max(map(cell_len, lines)) <= width
        assert lines[1].split()[1] == "1"
        assert "…" in lines[1]

    @pytest.mark.parametrize("width", [20, 40, 80])
    def test_ids_stay_whole(self, width: int) -> None:
        job = a_job(goal="a long goal " * 5, kind="a-long-kind" * 5)
        columns = jobtable.columns(Output().times)
        for chosen, id in (([c for c in columns if not c.wide], short(job.id)), (columns, str(job.id))):
            assert id in laid_out([[c.cell(job) for c in chosen]], chosen, width).plain

    def test_nothing_is_cut_where_there_is_no_terminal(self) -> None:
        lines = laid_out([[c.cell(r) for c in TABLE] for r in ROWS], TABLE, None).plain.split("\n")
        assert lines[1].startswith("a" * 60 + "  ")
        assert lines[2].split()[1] == "1000"

    def test_every_status_has_an_icon_and_its_word(self) -> None:
        for status in Status:
            text, style = status_cell(status)
            assert text.endswith(f" {status}")
            assert text != style

    def test_data_cannot_break_the_table(self, capsys: pytest.CaptureFixture[str]) -> None:
        columns: list[Column[str]] = [Column("text", lambda t: t), Column("end", lambda t: "end")]
        Output().rows(["a\nb\x1b[31m"], columns, id=str, plain=lambda t: {"text": t})
        assert capsys.readouterr().out == "TEXT         END\na b\\x1b[31m  end\n"

    def test_json_cannot_either(self, perdure: Perdure) -> None:
        id = perdure(
            "jobs", "start", "x", "--goal", "\x1b[2J\u202e\x7f", "--input", '"\\ud83d\\ude00"', "-o", "id"
        ).out.strip()
        out = perdure("jobs", "get", id, "--json").out
        assert not set(out) & set("\x1b\u202e\x7f")
        assert json.loads(out)["items"][0]["goal"] == "\x1b[2J\u202e\x7f"


def test_a_lone_surrogate_is_printed_as_json_escape(capsys: pytest.CaptureFixture[str]) -> None:
    Output().json({"text": "\ud800"})
    assert json.loads(capsys.readouterr().out) == {"text": "\ud800"}


def test_records_become_json(capsys: pytest.CaptureFixture[str]) -> None:
    job = a_job(id=uuid7())
    Output().json(job)
    printed = json.loads(capsys.readouterr().out)
    assert printed["id"] == str(job.id)
    assert printed["status"] == "PENDING"
    assert printed["state"]["progress"] is None


def test_what_is_nested_deep_breaks_no_output() -> None:
    deep: object = 1
    for _ in range(900):
        deep = [deep]
    shown = jsonable({"result": deep, "plain": [[1]]})
    assert json.loads(json.dumps(shown, indent=2))["plain"] == [[1]]
    assert "[[[[" in json.dumps(shown) or "nested too deep" in json.dumps(shown)
