"""`perdure jobs fork`, `jobs diff` and `jobs get --at`."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Perdure, program, spawned
from tests.cli.test_jobs import NOWHERE


class TestFork:
    """jobs fork."""

    def test_from_a_step_with_a_changed_input(self, anywhere: Perdure) -> None:
        old = anywhere.ran("research", "-P", "topic=tea")
        done = anywhere(
            "jobs", "fork", old[-8:], "--from-step", "read 1", "--set", "input.limit:=3", "--reason", "more"
        )
        new = done.out.strip()
        assert f"…{new[-8:]} is …{old[-8:]} again from 'read 1' on; it keeps 1 step" in done.err
        assert f"perdure jobs watch {new[-8:]}" in done.err
        job = anywhere("jobs", "get", new, "--json").only
        assert (job["origin_kind"], job["origin_id"], job["payload"]) == ("fork", old, {"topic": "tea", "limit": 3})
        assert (job["note"]["from_step"], job["note"]["reason"], job["priority"]) == ("read 1", "more", 7)
        anywhere.work()
        assert anywhere("jobs", "get", new, "--json").only["result"] == {"notes": ["tea 0", "tea 1", "tea 2"]}
        table = anywhere("jobs", "steps", new).lines
        assert table[1].startswith("✓ kept  read 0")
        assert table[2].startswith("✓ done  read 1")
        assert f"kept from …{old[-8:]} version 3" in anywhere("jobs", "events", new).out
        assert f"fork of …{old[-8:]}" in anywhere("jobs", "get", new).out

    def test_by_number_and_as_json(self, anywhere: Perdure) -> None:
        old = anywhere.ran("research", "-P", "topic=tea")
        assert [s["number"] for s in anywhere("jobs", "steps", old, "--json").json["items"]] == [1, 2]
        job = anywhere("jobs", "fork", old, "--from-step", "2", "--json").json
        assert (job["note"]["from_step"], job["status"], job["state"]["cursor"]) == ("read 1", "PENDING", "read 0")
        assert len(anywhere("jobs", "fork", old, "-o", "id").lines) == 1

    def test_without_a_step_nothing_runs_again(self, perdure: Perdure) -> None:
        old = perdure.ran("research", "-P", "topic=tea")
        done = perdure("jobs", "fork", old)
        assert f"is …{old[-8:]} again; it keeps 2 steps" in done.err

    def test_another_input(self, perdure: Perdure, place: Path) -> None:
        old = perdure.ran("research", "-P", "topic=tea")
        (place / "brief.json").write_text('{"topic": "coffee", "limit": 1}')

        def payload(*args: str, stdin: str = "") -> object:
            return perdure("jobs", "fork", old, "--from-step", "1", *args, "--json", stdin=stdin).json["payload"]

        assert payload("--input", "@brief.json") == {"topic": "coffee", "limit": 1}
        assert payload("--input", "-", stdin="null") is None
        assert payload("--input", "@brief.json", "--set", "input.limit:=2") == {"topic": "coffee", "limit": 2}
        assert payload("--set", "input.topic=mate", "--set", "input.tags:=[1, {}]", "--set", "input.tags.1.a=b") == {
            "topic": "mate",
            "tags": [1, {"a": "b"}],
        }
        assert payload("--set", "input:=[]") == []

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ("limit:=2", "that is neither input.path=value nor input.path:=json"),
            ("input.limit", "that is neither input.path=value"),
            ("input..a=1", "that is neither input.path=value"),
            ("input.limit:=x", "as text it is written with = alone: --set input.limit=x"),
            ("input.a.b=1", "there is no 'a' in the input"),
            ("input.topic.b=1", "'b' cannot be set in what is no object"),
            ("input.limit:=@nowhere", "cannot read 'nowhere'"),
        ],
    )
    def test_changes_that_make_no_sense(self, perdure: Perdure, change: str, says: str) -> None:
        old = perdure.ran("research", "-P", "topic=tea")
        assert says in perdure("jobs", "fork", old, "--set", change, code=2).err
        assert len(perdure("jobs", "ls", "-o", "id").lines) == 1

    def test_lists_are_changed_by_place(self, perdure: Perdure) -> None:
        old = perdure("jobs", "start", "x", "--input", "[1, [2, 3]]", "-o", "id").out.strip()
        job = perdure("jobs", "fork", old, "--set", "input.1.0:=5", "--json").json
        assert job["payload"] == [1, [5, 3]]
        assert (
            "'2' cannot be set in what is a list of 2" in perdure("jobs", "fork", old, "--set", "input.2=x", code=2).err
        )

    def test_steps_that_are_not_there(self, anywhere: Perdure) -> None:
        old = anywhere.ran("research", "-P", "topic=tea")
        done = anywhere("jobs", "fork", old, "--from-step", "raed 1", code=3)
        assert "has no step 'raed 1'; did you mean 'read 1'?" in done.err
        assert "its steps: 1 read 0, 2 read 1" in done.err
        assert "[perdure help step-not-found]" in done.err
        anywhere("jobs", "fork", NOWHERE, code=3)
        assert len(anywhere("jobs", "ls", "-o", "id").lines) == 1

    def test_with_the_app_the_input_is_checked(self, perdure: Perdure) -> None:
        old = perdure.ran("research", "-P", "topic=tea")
        done = perdure("jobs", "fork", old, "--set", "input.limit=many", "--app", "agents:app", code=2)
        assert "does not fit Brief" in done.err

    def test_following_it(self) -> None:
        assert program("jobs", "start", "fails", "--app", "agents:app").code == 0
        assert program("worker", "start", "--app", "agents:app", "--once", "-q").code == 0
        old = program("jobs", "ls", "-o", "id").out.strip()
        with spawned("worker", "start", "--app", "agents:app"):
            done = program("jobs", "fork", old, "--follow")
        assert done.code == 6
        assert "no such account" in done.err
        assert "run_started" in done.err


class TestDiff:
    """jobs diff."""

    def test_what_differs(self, anywhere: Perdure) -> None:
        old = anywhere.ran("research", "-P", "topic=tea")
        new = anywhere("jobs", "fork", old, "--from-step", "read 1", "--set", "input.limit:=3", "-o", "id").out.strip()
        anywhere.work()
        page = anywhere("jobs", "diff", old[-8:], new[-8:]).out
        for words in (
            f"-  ✓ COMPLETED  …{old[-8:]}",
            f"+  ✓ COMPLETED  …{new[-8:]}",
            f"fork of …{old[-8:]}",
            "Input\n  + limit: 3\n",
            "  +  read 2",
            "2 steps are the same",
            'Result\n  + notes.2: "tea 2"\n',
            "Outcome\n  the same",
        ):
            assert words in page, words
        found = anywhere("jobs", "diff", old, new, "--json").json
        assert (found["a"]["id"], found["b"]["origin_id"], found["equal"]) == (old, old, False)
        assert found["input"] == [{"path": "limit", "change": "only_b", "a": None, "b": 3}]
        assert [(s["key"], s["change"]) for s in found["steps"]] == [
            ("read 0", "same"),
            ("read 1", "same"),
            ("read 2", "only_b"),
        ]
        assert anywhere("jobs", "diff", old, old, "--json").json["equal"] is True

    def test_parts(self, perdure: Perdure) -> None:
        a, b = perdure.ran("greet", "--input", '"ann"'), perdure.ran("fails")
        page = perdure("jobs", "diff", a, b, "--what", "outcome,result").out
        assert '~ kind: "greet" → "fails"' in page
        assert "Steps" not in page
        assert page.index("Outcome") < page.index("Result")
        assert list(perdure("jobs", "diff", a, b, "--what", "steps", "--json").json) == ["a", "b", "equal", "steps"]
        assert "-  say" in perdure("jobs", "diff", a, b).out
        assert "neither has recorded any" in perdure("jobs", "diff", b, b, "--what", "steps").out
        assert "there is no part 'colour'" in perdure("jobs", "diff", a, b, "--what", "colour", code=2).err

    def test_what_was_pruned_is_not_called_the_same(self, perdure: Perdure) -> None:
        a, b = perdure.ran("greet", "--input", '"ann"'), perdure.ran("greet", "--input", '"bob"')
        perdure("db", "prune", "--older-than", "0s", "--keep-logs", "-y")
        page = perdure("jobs", "diff", a, b).out
        both = f"not known: pruned from …{a[-8:]} and …{b[-8:]}\n"
        assert f"Input\n  {both}" in page
        assert f"Result\n  {both}" in page
        assert "Outcome\n  the same" in page
        found = perdure("jobs", "diff", a, b, "--json").json
        assert found["a"]["pruned_at"]
        assert found["b"]["pruned_at"]

    def test_many_differences_are_cut_on_the_page_only(self, perdure: Perdure) -> None:
        a = perdure("jobs", "start", "x", "--input", json.dumps([0] * 60), "-o", "id").out.strip()
        b = perdure("jobs", "start", "x", "--input", json.dumps([1] * 60), "-o", "id").out.strip()
        page = perdure("jobs", "diff", a, b).out
        assert "~ 49: 0 → 1\n  … 10 more (-o json prints all)\n" in page
        assert len(perdure("jobs", "diff", a, b, "--json").json["input"]) == 60

    def test_steps_with_other_arguments(self, perdure: Perdure) -> None:
        a, b = perdure.ran("greet", "--input", '"ann"'), perdure.ran("greet", "--input", '"bob"')
        page = perdure("jobs", "diff", a, b, "--what", "steps").out
        assert "~  say   done" in page
        assert "arguments, result differ: hello ann → hello bob" in page

    def test_jobs_that_are_not_there(self, anywhere: Perdure) -> None:
        id = anywhere.start("naps")
        anywhere("jobs", "diff", id, NOWHERE, code=3)
        assert "missing argument 'ID_B'" in anywhere("jobs", "diff", id, code=2).err


class TestAt:
    """jobs get --at."""

    def test_a_job_as_it_was(self, anywhere: Perdure) -> None:
        id = anywhere.ran("research", "-P", "topic=tea")
        head = anywhere("jobs", "get", id, "--json").only["version"]
        page = anywhere("jobs", "get", id, "--at", "3", "--time-format", "iso")
        assert page.out.startswith(f"◐ RUNNING  research  {id}\n  as of         version 3 of {head}, 20")
        assert "  last step     read 0\n" in page.out
        assert "  worker        w-" in page.out
        assert "job_completed" not in page.out
        assert "Result" not in page.out
        assert page.err == "", "what one would type next is about now"
        job = anywhere("jobs", "get", id, "--at", "3", "--json", "--show", "steps,events,runs").only
        assert (job["version"], job["status"], job["result"], job["lease"]) == (3, "RUNNING", None, None)
        assert [s["key"] for s in job["steps"]] == ["read 0"]
        assert (len(job["events"]), job["runs"]) == (3, [])
        assert anywhere("jobs", "get", id, "--at", str(head), "--json").only["result"] == {"notes": ["tea 0", "tea 1"]}
        assert anywhere("jobs", "get", id, "--at", "1", "--fields", "status").out == "PENDING\n"

    def test_what_it_waited_for(self, perdure: Perdure) -> None:
        id = perdure.ran("asks", "--input", '"x"')
        perdure("approvals", "approve", id)
        perdure.work()
        events = [json.loads(line) for line in perdure("jobs", "events", id, "-o", "jsonl").lines]
        [asking] = [e["version"] for e in events if e["new_status"] == "WAITING_FOR_APPROVAL"]
        assert "Waits for\n  approval 'publish'" in perdure("jobs", "get", id, "--at", str(asking)).out

    @pytest.mark.parametrize(
        ("version", "says"), [("0", "has no version 0"), ("99", "its log goes from 1 to 1"), ("x", "--at")]
    )
    def test_versions_that_are_not_there(self, anywhere: Perdure, version: str, says: str) -> None:
        assert says in anywhere("jobs", "get", anywhere.start("naps"), "--at", version, code=2).err
