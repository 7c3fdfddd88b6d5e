"""`perdure jobs`, command by command."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import AGENTS, Perdure

APP = ("--app", "agents:app")

NOWHERE = "01900000-0000-7000-8000-000000000000"  # fixed: the workers of a parallel run must collect the same names


def payload(perdure: Perdure, *args: str, stdin: str = "") -> object:
    """The payload of a job started so."""
    return json.loads(perdure("jobs", "start", "x", *args, "-o", "jsonl", stdin=stdin).out)["payload"]


class TestStart:
    """jobs start."""

    def test_prints_the_id(self, anywhere: Perdure) -> None:
        id = anywhere("jobs", "start", "x").out.strip()
        assert anywhere("jobs", "get", id, "--json").only["kind"] == "x"
        assert anywhere("jobs", "start", "x", "-o", "id").out.strip() == anywhere("jobs", "ls", "-o", "id").lines[0]
        assert anywhere("jobs", "start", "x", "--json").json["status"] == "PENDING"
        assert anywhere("jobs", "start", "x", "-o", "none").out == ""

    def test_parameters(self, perdure: Perdure) -> None:
        assert payload(perdure, "-P", "topic=a=b", "-P", "limit:=3", "-P", "tags:=[1, null]") == {
            "topic": "a=b",
            "limit": 3,
            "tags": [1, None],
        }

    def test_input(self, perdure: Perdure, place: Path) -> None:
        (place / "brief.json").write_text('{"topic": "tea", "limit": 1}')
        assert payload(perdure, "--input", '"world"') == "world"
        assert payload(perdure, "--input", "@brief.json") == {"topic": "tea", "limit": 1}
        assert payload(perdure, "--input", "-", stdin="[1]") == [1]
        assert payload(perdure, "--input", "@brief.json", "-P", "limit:=2") == {"topic": "tea", "limit": 2}
        assert payload(perdure, "-P", "text=@brief.json") == {"text": '{"topic": "tea", "limit": 1}'}
        assert payload(perdure) is None

    @pytest.mark.parametrize(
        ("args", "says"),
        [
            (("--input", "world"), "a text needs its quotes: --input '\"world\"'"),
            (("--input", "{"), "--input: that is not JSON: Expecting property name"),
            (("--input", "NaN"), "NaN is not JSON"),
            (("--input", "@nowhere"), "--input: cannot read 'nowhere': No such file or directory"),
            (("--input", "[1]", "-P", "a=b"), "-P sets keys of an object, and --input is none"),
            (("-P", "a"), "-P a: that is neither key=value nor key:=json"),
            (("-P", "=a"), "neither key=value nor key:=json"),
            (("-P", "a:=x"), "as text it is written with = alone: -P a=x"),
            (("-P", "a=1", "-P", "a=2"), "-P a is given twice"),
            (("--priority", "10"), "priority must be a whole number from 1 to 9"),
            (("--priority", "high"), "'--priority'"),
            (("--max-retries", "101"), "max_retries must be a whole number from 0 to 100"),
            (("--delay", "soon"), "'soon' is not a duration"),
            (("--delay", "-5m"), "delay cannot be negative"),
            (("--delay", "1h", "--run-at", "2h"), "give either delay or run_at"),
            (("--run-at", "soon"), "--run-at: 'soon' is neither a time nor a duration"),
            (("--deadline", "25:00"), "--deadline: '25:00' is not a time"),
            (("--queue", "a b"), "a queue's name"),
            (("--wait=soon",), "--wait: 'soon' is not a duration"),
            (("--stop-on-approval",), "--stop-on-approval goes with --wait or --follow"),
            (("--goal", ""), "goal must be text"),
        ],
        ids=lambda v: " ".join(v) if isinstance(v, tuple) else "",
    )
    def test_what_makes_no_sense(self, perdure: Perdure, args: tuple[str, ...], says: str) -> None:
        done = perdure("jobs", "start", "x", *args, code=2)
        assert says in done.err
        assert done.out == ""
        assert perdure("jobs", "ls", "-o", "id").out == ""

    def test_options(self, perdure: Perdure) -> None:
        options = "--key k --delay 1h --deadline 3h --priority 9 --queue slow --max-retries 0 --goal Go".split()  # noqa: SIM905
        job = perdure("jobs", "start", "x", *options, "--json").json
        assert (job["idempotency_key"], job["priority"], job["queue"]) == ("k", 9, "slow")
        assert (job["max_retries"], job["goal"]) == (0, "Go")
        assert job["created_at"] < job["run_at"] < job["deadline"]
        assert (
            perdure("jobs", "start", "x", "--run-at", "2099-01-01T00:00Z", "--json").json["run_at"].startswith("2099")
        )

    def test_idempotency(self, anywhere: Perdure) -> None:
        first = anywhere("jobs", "start", "x", "--key", "k", "-P", "n=1").out
        again = anywhere("jobs", "start", "x", "--key", "k", "-P", "n=1")
        assert again.out == first
        assert "this key was used before" in again.err
        conflict = anywhere("jobs", "start", "x", "--key", "k", "-P", "n=2", code=5)
        assert "[perdure help idempotency-conflict]" in conflict.err

    def test_with_an_app_kind_input_and_policy_are_known(self, perdure: Perdure) -> None:
        done = perdure("jobs", "start", "reserch", "--app", "agents:app", code=2)
        assert "did you mean 'research'?" in done.err
        assert "--elsewhere" in done.err
        assert (
            "does not fit Brief"
            in perdure("jobs", "start", "research", "--app", "agents:app", "-P", "limit=x", code=2).err
        )
        job = perdure("jobs", "start", "research", "--app", "agents:app", "-P", "topic=tea", "--json").json
        assert job["priority"] == 7
        assert perdure("jobs", "start", "reserch", "--app", "agents:app", "--elsewhere", "-o", "id").out

    def test_the_app_may_be_a_setting(self, perdure: Perdure, place: Path) -> None:
        (place / "perdure.toml").write_text('app = "agents:app"\n')
        assert "did you mean 'greet'?" in perdure("jobs", "start", "gret", code=2).err


class TestApp:
    """--app module:attr."""

    @pytest.mark.parametrize(
        ("where", "says"),
        [
            ("agents", "that is not module:attribute"),
            ("agents.py", "for example: --app agents:app"),
            ("agents.py:app", "write --app agents:app"),
            ("nowhere:app", "there is no module 'nowhere'"),
            ("agents.sub:app", "there is no module 'agents.sub'"),
            ("agents:ap", "did you mean 'app'?"),
            ("agents:other", "it has these Apps: app"),
            ("agents:Brief", "not a perdure App"),
            ("agents:greet", "it is of type Handler, not a perdure App"),
            ("broken:app", "importing 'broken' failed: ZeroDivisionError: division by zero"),
            ("needy:app", "No module named 'nosuchlib'"),
            ("typo:app", "importing 'typo' failed: SyntaxError"),
            ("ends:app", "importing 'ends' ended the program"),
            ("empty:app", "it has no App at all"),
        ],
    )
    def test_what_cannot_be_loaded(self, perdure: Perdure, place: Path, where: str, says: str) -> None:
        (place / "broken.py").write_text("x = 1 / 0\n")
        (place / "needy.py").write_text("import nosuchlib\n")
        (place / "typo.py").write_text("def (\n")
        (place / "ends.py").write_text("raise SystemExit(3)\n")
        (place / "empty.py").write_text("")
        done = perdure("jobs", "ls", "--app", where, code=2)
        assert says in done.err
        assert "[perdure help app-not-found]" in done.err
        assert "Traceback" not in done.err

    def test_the_place_of_a_broken_import(self, perdure: Perdure, place: Path) -> None:
        (place / "broken.py").write_text("\n\nx = 1 / 0\n")
        assert f"{place}/broken.py:3" in perdure("jobs", "ls", "--app", "broken:app", code=2).err
        assert "Traceback" in perdure("jobs", "ls", "--app", "broken:app", "-vv", code=2).err

    def test_its_own_database_counts_for_every_command(self, perdure: Perdure, place: Path) -> None:
        (place / "mine.py").write_text('from perdure import App\napp = App("sqlite:///mine.db", tenant="acme")\n')
        perdure("jobs", "start", "x", "--app", "mine:app")
        assert (place / "mine.db").exists()
        assert len(perdure("jobs", "ls", "--app", "mine:app", "-o", "id").lines) == 1
        assert perdure("jobs", "ls", "--app", "mine:app", "--db", "sqlite:///other.db", "-o", "id").lines == []
        origins = perdure("config", "ls", "--app", "mine:app", "--origin").out
        assert "app mine:app" in origins
        assert "acme" in origins


class TestList:
    """jobs ls and count."""

    def test_filters(self, anywhere: Perdure) -> None:
        a = anywhere.start("greet", "--input", '"ann"', "--queue", "one", "--goal", "say Hello")
        b = anywhere.start("fails", "--key", "k")
        anywhere.work()

        def listed(*args: str) -> list[str]:
            return anywhere("jobs", "ls", "-o", "id", *args).lines

        assert listed() == [b, a]
        assert listed("--kind", "greet") == [a]
        assert listed("--kind", "greet,fails") == [b, a]
        assert listed("--kind", "greet", "--kind", "fails") == [b, a]
        assert listed("--queue", "one") == [a]
        assert listed("--status", "failed") == [b]
        assert listed("--status", "pending,succeeded") == [a]
        assert listed("--search", "hello") == [a]
        assert listed("--search", "no such account") == [b]
        assert listed("--key", "k") == [b]
        assert listed("--since", "1h") == [b, a]
        assert listed("--until", "1h") == []
        assert "no job matches" in anywhere("jobs", "ls", "--kind", "nope").err

    def test_bad_filters(self, perdure: Perdure) -> None:
        perdure.start("naps")
        assert "unknown status 'nope'" in perdure("jobs", "ls", "--status", "nope", code=2).err
        assert "--since: 'nope'" in perdure("jobs", "ls", "--since", "nope", code=2).err
        assert "is not a cursor" in perdure("jobs", "ls", "--cursor", "nope", code=2).err

    def test_the_last_word(self, perdure: Perdure) -> None:
        perdure.ran("fails")
        perdure.ran("breaks")
        perdure.ran("asks", "--input", '"a draft"')
        perdure.ran("greet", "--input", '"ann"')
        perdure.start("naps", "--delay", "1h")
        table = perdure("jobs", "ls", "--time-format", "relative").out
        assert "starts in 59m" in table
        assert "hello ann" in table
        assert "asks: Publish this?, expires in 59m" in table
        assert "next attempt in 59m: ValueError: empty source list" in table
        assert "no such account" in table

    def test_all_pages(self, perdure: Perdure) -> None:
        ids = [perdure.start("naps") for _ in range(4)][::-1]
        assert perdure("jobs", "ls", "--limit", "3", "-o", "id").lines == ids[:3]
        assert perdure("jobs", "ls", "--all", "--limit", "1", "-o", "id").lines == ids

    def test_count(self, anywhere: Perdure) -> None:
        anywhere.start("naps", "--delay", "1h")
        anywhere.ran("fails")
        assert anywhere("jobs", "count", "--json").json == {"PENDING": 1, "FAILED": 1}
        assert anywhere("jobs", "count", "--by", "kind", "--status", "failed", "--json").json == {"fails": 1}
        lines = anywhere("jobs", "count").lines
        assert lines[0].split() == ["STATUS", "JOBS"]
        assert lines[1].split() == ["○", "PENDING", "1"]
        assert anywhere("jobs", "count", "--by", "queue", "-o", "id").lines == ["default"]
        assert "'colour'" in anywhere("jobs", "count", "--by", "colour", code=2).err


class TestGet:
    """jobs get, steps and events."""

    def test_a_page(self, anywhere: Perdure) -> None:
        id = anywhere.ran("research", "-P", "topic=tea", "--goal", "Look at tea", "--key", "k")
        done = anywhere("jobs", "get", id[-8:])
        for words in (
            f"✓ COMPLETED  research  {id}",
            "Look at tea",
            "default, priority 7",
            "1 of 4",
            "50% half way",
            "read 1",
            "120 tokens, cost 0.5",
            '"topic": "tea"',
            '"tea 0"',
            "Checkpoint",
            "job_completed",
        ):
            assert words in done.out
        assert f"perdure jobs steps {id[-8:]}" in done.err

    def test_why_it_failed(self, perdure: Perdure) -> None:
        id = perdure.ran("fails")
        done = perdure("jobs", "get", id)
        assert "Error (fatal)\n  no such account" in done.out
        assert "Traceback\n" in done.out
        line = 1 + AGENTS.splitlines().index('        raise Fail("no such account")')
        assert f'agents.py", line {line}, in fails' in done.out
        assert perdure("jobs", "get", id, "--json").only["note"]["traceback"].count("Fail: no such account") == 1
        assert "Traceback" not in perdure("jobs", "events", id).out
        assert f"perdure jobs rerun {id[-8:]}" in done.err

    def test_what_it_waits_for(self, perdure: Perdure) -> None:
        asks = perdure.ran("asks", "--input", '"a draft"')
        done = perdure("jobs", "get", asks)
        assert "Waits for\n  approval …" in done.out
        assert "Publish this?, expires" in done.out
        assert "perdure approvals approve" in done.err
        naps = perdure.ran("naps")
        assert "timer 'nap', until" in perdure("jobs", "get", naps).out

    def test_when_the_next_attempt_is(self, perdure: Perdure) -> None:
        done = perdure("jobs", "get", perdure.ran("breaks"), "--time-format", "relative")
        assert "next attempt  in 59m" in done.out
        assert "because       ValueError: empty source list (at agents.py:" in done.out
        assert "perdure jobs retry-now" in done.err

    def test_parts(self, perdure: Perdure) -> None:
        id = perdure.ran("research", "-P", "topic=tea")
        out = perdure("jobs", "get", id, "--show", "steps,result").out
        assert out.index("Steps") < out.index("Result")
        assert "Payload" not in out
        assert "Events" in perdure("jobs", "get", id, "--show", "all").out
        assert perdure("jobs", "get", id, "--show", "input").out.count("tea") == 1
        assert "there is no part 'colour'" in perdure("jobs", "get", id, "--show", "colour", code=2).err

    def test_json(self, perdure: Perdure) -> None:
        id = perdure.ran("research", "-P", "topic=tea")
        job = perdure("jobs", "get", id, "--json").only
        assert job["result"] == {"notes": ["tea 0", "tea 1"]}
        assert job["state"]["checkpoint"] == {"notes": 2}
        assert "steps" not in job
        more = perdure("jobs", "get", id, "--json", "--show", "steps,events,runs").only
        assert [s["key"] for s in more["steps"]] == ["read 0", "read 1"]
        assert more["events"][0]["type"] == "job_created"
        assert more["runs"][0]["outcome"] == "COMPLETED"
        assert perdure("jobs", "get", id, "-o", "id").out.strip() == id

    def test_long_values_are_cut_on_the_page_only(self, perdure: Perdure) -> None:
        id = perdure("jobs", "start", "x", "--input", json.dumps(list(range(50))), "-o", "id").out.strip()
        page = perdure("jobs", "get", id).out
        assert "… 32 more lines" in page
        assert "  49\n" not in page.replace("    49", "  49")
        assert "49" in perdure("jobs", "get", id, "--show", "payload").out

    @pytest.mark.parametrize("number", [0, 1, 2])
    @pytest.mark.parametrize(
        "verb",
        ["jobs get", "jobs watch", "jobs cancel", "jobs retry-now", "jobs rerun", "approvals get", "approvals deny"],
    )
    def test_their_number_does_not_change_the_shape(self, perdure: Perdure, verb: str, number: int) -> None:
        kind = ("asks", "--input", '"x"') if "approvals" in verb else ("breaks",)
        ids = [perdure.ran(*kind)[-8:] for _ in range(number)]
        if verb == "jobs watch":
            perdure("jobs", "cancel", "-", "--yes", stdin="\n".join(ids))
        shown = perdure(*verb.split(), "-", "--yes", "--json", stdin="\n".join(ids), code=None)
        assert sorted(shown.json) == ["items", "next_cursor"]
        assert len(shown.json["items"]) == number

    def test_a_job_looks_the_same_wherever_it_is_shown(self, anywhere: Perdure) -> None:
        id = anywhere.ran("asks", "--input", '"x"')
        brief = anywhere.ran("research", "--input", '{"topic": "tea"}')
        seen: dict[str, Any] = {}
        for job in (id, brief):
            seen = anywhere("jobs", "get", job, "--json").only
            assert seen["state"]["cursor"] == ("read 1" if job == brief else None)
            assert bool(seen["waits"]) == (job == id)
            listed = anywhere("jobs", "ls", "--json").json["items"]
            assert [item for item in listed if item["id"] == job] == [seen]
            assert json.loads(anywhere("jobs", "get", job, "-o", "jsonl").out) == seen
        assert anywhere("jobs", "watch", brief, "--json").only == seen
        assert anywhere("jobs", "rerun", brief, "--json").only.keys() == seen.keys()
        started = anywhere("jobs", "start", "greet", "--input", '"x"', *APP, "--json").json
        assert started.keys() == seen.keys()

    def test_a_job_that_was_started_has_the_fields_that_are_asked_for(self, perdure: Perdure) -> None:
        done = perdure("jobs", "start", "greet", "--input", '"x"', *APP, "--json", "--fields", "kind,status")
        assert done.json == {"kind": "greet", "status": "PENDING"}

    def test_several(self, perdure: Perdure) -> None:
        a, b = perdure.start("naps"), perdure.start("greet", "--input", '"x"')
        assert perdure("jobs", "get", a, b, "--fields", "kind").lines == ["naps", "greet"]
        assert perdure("jobs", "get", "-", "--fields", "kind", stdin=f"{b}\n{a}\n").lines == ["greet", "naps"]
        assert [job["id"] for job in perdure("jobs", "get", a, b, "--json").json["items"]] == [a, b]
        done = perdure("jobs", "get", NOWHERE, a, "--fields", "kind", code=3)
        assert done.lines == ["naps"]
        assert "[perdure help job-not-found]" in done.err

    @pytest.mark.parametrize(
        ("id", "code", "says"),
        [
            (NOWHERE, 3, "[perdure help job-not-found]"),
            ("aaaaaaaa", 3, "[perdure help job-not-found]"),
            ("abc", 2, "at least 6"),
            ("nonsense", 2, "not an id"),
        ],
    )
    def test_ids_that_name_nothing(self, anywhere: Perdure, id: str, code: int, says: str) -> None:
        anywhere.start("naps")
        done = anywhere("jobs", "get", id, code=code)
        assert says in done.err
        assert done.out == ""

    def test_steps(self, anywhere: Perdure) -> None:
        id = anywhere.ran("research", "-P", "topic=tea")
        lines = anywhere("jobs", "steps", id).lines
        assert lines[0].split()[:3] == ["STATUS", "STEP", "KIND"]
        assert lines[1].startswith("✓ done  read 0  step")
        assert lines[1].endswith("tea 0")
        steps = anywhere("jobs", "steps", id, "--json").json["items"]
        assert [(s["key"], s["status"], s["result"]) for s in steps][1] == ("read 1", "done", "tea 1")
        assert "no steps yet" in anywhere("jobs", "steps", anywhere.start("naps")).err
        anywhere("jobs", "steps", NOWHERE, code=3)

    def test_steps_that_wait(self, perdure: Perdure) -> None:
        id = perdure.ran("asks", "--input", '"x"')
        assert "⏸ waiting  publish  approval" in perdure("jobs", "steps", id).out
        perdure("approvals", "approve", id)
        perdure.work()
        assert "✓ done  publish  approval" in perdure("jobs", "steps", id).out
        naps = perdure.ran("naps")
        assert "⏸ waiting  nap   timer" in perdure("jobs", "steps", naps).out
        perdure("jobs", "cancel", naps)
        assert "? cut off  nap   timer" in perdure("jobs", "steps", naps).out

    def test_events(self, anywhere: Perdure) -> None:
        id = anywhere.ran("greet", "--input", '"ann"')
        types = ["job_created", "run_started", "node_finished", "job_completed"]
        assert [line.split()[2] for line in anywhere("jobs", "events", id).lines[1:]] == types
        assert "say · in " in anywhere("jobs", "events", id).out
        events = [json.loads(line) for line in anywhere("jobs", "events", id, "-o", "jsonl").lines]
        assert [e["type"] for e in events] == types
        assert [e["version"] for e in events] == [1, 2, 3, 4]
        assert events[2]["payload"]["result"] == "hello ann"
        assert events[2]["class"] == "step"
        assert [e["version"] for e in anywhere("jobs", "events", id, "--from", "3", "--json").json["items"]] == [3, 4]
        some = anywhere("jobs", "events", id, "--type", "job_created,node_finished", "--fields", "type").lines[1:]
        assert some == ["job_created", "node_finished"]
        anywhere("jobs", "events", NOWHERE, code=3)

    def test_following_ends_with_the_job(self, anywhere: Perdure) -> None:
        id = anywhere.ran("greet", "--input", '"ann"')
        assert [line.split()[2] for line in anywhere("jobs", "events", id, "-f").lines][-1] == "job_completed"
        lines = anywhere("jobs", "events", id, "-f", "-o", "jsonl", "--from", "4").lines
        assert [json.loads(line)["type"] for line in lines] == ["job_completed"]
        assert "use -o jsonl" in anywhere("jobs", "events", id, "-f", "--json", code=2).err


class TestControl:
    """jobs cancel, retry-now, rerun."""

    def test_cancel(self, anywhere: Perdure) -> None:
        id = anywhere.start("naps")
        assert anywhere("jobs", "cancel", id, "--reason", "not needed").out == f"⊘ CANCELLED  …{id[-8:]}\n"
        job = anywhere("jobs", "get", id, "--json").only
        assert (job["status"], job["note"]["reason"], job["note"]["via"]) == ("CANCELLED", "not needed", "cli")
        assert anywhere("jobs", "cancel", id, "--json").json["items"] == [{"id": id, "status": "CANCELLED"}]
        done = anywhere("jobs", "cancel", anywhere.ran("fails"), code=5)
        assert "[perdure help illegal-transition]" in done.err
        anywhere("jobs", "cancel", NOWHERE, code=3)

    def test_cancelling_several_needs_a_yes(self, perdure: Perdure) -> None:
        a, b = perdure.start("naps"), perdure.start("naps")
        done = perdure("jobs", "cancel", a, b, code=2)
        assert "Cancel 2 jobs?" in done.err
        assert "--yes" in done.err
        assert perdure("jobs", "count", "--json").json == {"PENDING": 2}
        done = perdure("jobs", "cancel", "-", NOWHERE, "-y", stdin=f"{a} {b} {a}", code=3)
        assert done.out.count("CANCELLED") == 2
        assert perdure("jobs", "cancel", "-", stdin="").out == ""

    def test_retry_now(self, anywhere: Perdure) -> None:
        id = anywhere.ran("breaks")
        assert anywhere("jobs", "retry-now", id).out == f"↻ RETRY  …{id[-8:]}\n"
        anywhere.work()
        assert anywhere("jobs", "get", id, "--fields", "status").out == "DEADLETTER\n"
        assert "[perdure help illegal-transition]" in anywhere("jobs", "retry-now", id, code=5).err
        late = anywhere.start("greet", "--input", '"x"', "--delay", "1h")
        anywhere("jobs", "retry-now", late)
        anywhere.work()
        assert anywhere("jobs", "get", late, "--fields", "status").out == "COMPLETED\n"

    def test_rerun(self, anywhere: Perdure) -> None:
        old = anywhere.ran("greet", "--input", '"ann"')
        done = anywhere("jobs", "rerun", old)
        new = anywhere("jobs", "get", done.out.strip(), "--json").only
        assert (new["origin_id"], new["origin_kind"], new["payload"], new["status"]) == (old, "rerun", "ann", "PENDING")
        assert f"reruns …{old[-8:]}" in done.err
        assert len(anywhere("jobs", "rerun", old, new["id"], "-o", "id").lines) == 2
        anywhere("jobs", "rerun", NOWHERE, code=3)

    @pytest.mark.parametrize(
        ("verb", "says"),
        [
            ("get", "missing argument 'ID'"),
            ("cancel", "give ids, or filters"),
            ("retry-now", "give ids, or filters"),
            ("rerun", "give ids, or filters"),
        ],
    )
    def test_no_id_at_all(self, perdure: Perdure, verb: str, says: str) -> None:
        assert says in perdure("jobs", verb, code=2).err


def test_tenants_do_not_meet(anywhere: Perdure) -> None:
    id = anywhere("jobs", "start", "x", "--tenant", "acme", "-o", "id").out.strip()
    assert anywhere("jobs", "ls", "-o", "id").out == ""
    assert anywhere("jobs", "ls", "--tenant", "acme", "-o", "id").out.strip() == id
    anywhere("jobs", "get", id, code=3)
