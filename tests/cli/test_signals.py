"""`perdure jobs signal`, and the pending signals on the page of a job."""

from pathlib import Path

from tests.cli.conftest import Perdure


def test_signals_are_sent_and_shown_until_they_are_taken(anywhere: Perdure, tmp_path: Path) -> None:
    job = anywhere("jobs", "start", "naps", "-o", "id").out.strip()
    (tmp_path / "brief.json").write_text('{"topic": "tea"}')
    said = anywhere("jobs", "signal", job[-8:], "paid", '{"amount": 3}', "--id", "t-1").lines
    assert said == ["signal 'paid' sent: it is kept until the job waits for it"]
    again = anywhere("jobs", "signal", job, "paid", '{"amount": 3}', "--id", "t-1", "--json").json
    assert (again["key"], again["payload"], again["caller_id"], again["via"]) == ("paid", {"amount": 3}, "t-1", "cli")
    anywhere("jobs", "signal", job, "brief", f"@{tmp_path}/brief.json")
    anywhere("jobs", "signal", job, "notes", "-", stdin="[1]")
    assert anywhere("jobs", "signal", job, "stop", "-o", "id").out.strip() != again["id"]
    page = anywhere("jobs", "get", job).out
    assert "Signals that no wait has taken" in page
    assert [line.split("'")[1] for line in page.splitlines() if line.startswith("  '")] == [
        "paid",
        "brief",
        "notes",
        "stop",
    ]
    shown = anywhere("jobs", "get", job, "--show", "signals", "--json").only["signals"]
    assert [signal["payload"] for signal in shown] == [{"amount": 3}, {"topic": "tea"}, [1], None]


def test_what_is_refused(perdure: Perdure) -> None:
    job = perdure("jobs", "start", "naps", "-o", "id").out.strip()
    perdure("jobs", "signal", job, "paid", "1", "--id", "t-1")
    assert "[perdure help signal-conflict]" in perdure("jobs", "signal", job, "paid", "2", "--id", "t-1", code=5).err
    assert "PAYLOAD: that is not JSON" in perdure("jobs", "signal", job, "paid", "much", code=2).err
    assert "key" in perdure("jobs", "signal", job, "", code=2).err
    assert "no job has the id" in perdure("jobs", "signal", "aaaaaaaa", "paid", code=3).err
    perdure("jobs", "cancel", job)
    assert "takes no more signals: it is already CANCELLED" in perdure("jobs", "signal", job, "paid", code=5).err
    assert len(perdure("jobs", "get", job, "--show", "signals", "--json").only["signals"]) == 1
