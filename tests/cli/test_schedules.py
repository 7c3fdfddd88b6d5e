"""`perdure schedules`."""

import json

from tests.cli.conftest import Perdure


def test_a_schedule_from_beginning_to_end(perdure: Perdure) -> None:
    assert "no schedule yet" in perdure("schedules", "ls").err
    added = perdure("schedules", "add", "nightly", "greet", "--cron", "30 3 * * *", "--timezone", "Europe/Berlin").out
    assert added.startswith("nightly: greet, 30 3 * * * Europe/Berlin, active\n")
    [item] = json.loads(perdure("schedules", "ls", "--json").out)["items"]
    assert (item["id"], item["kind"], item["overlap"], item["paused_at"]) == ("nightly", "greet", "skip", None)
    assert perdure("schedules", "get", "nightly", "-o", "id").out == "nightly\n"
    times = json.loads(perdure("schedules", "next", "nightly", "-n", "3", "--json").out)["items"]
    assert len(times) == 3
    assert times[0]["at"].startswith(item["next_at"][:10])
    assert "paused" in perdure("schedules", "pause", "nightly").out
    job = perdure("schedules", "trigger", "nightly", "-o", "id").out.strip()
    assert perdure("jobs", "get", job, "--json").only["kind"] == "greet"
    assert "active" in perdure("schedules", "resume", "nightly").out
    span = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-03T00:00Z")
    assert len(json.loads(perdure("schedules", "backfill", "nightly", *span, "--dry-run", "--json").out)["items"]) == 2
    perdure("schedules", "backfill", "nightly", *span)
    assert len(json.loads(perdure("jobs", "ls", "--json").out)["items"]) == 3
    assert "nightly is deleted" in perdure("schedules", "rm", "nightly").err
    assert "no schedule has the id 'nightly'" in perdure("schedules", "get", "nightly", code=3).err


def test_what_is_wrong_is_said_in_one_line(perdure: Perdure) -> None:
    bad = perdure("schedules", "add", "s", "greet", "--cron", "61 * * * *", code=2).err
    assert "cron: bad minute in '61 * * * *'" in bad
    assert (
        "unknown time zone 'Mars'"
        in perdure("schedules", "add", "s", "k", "--cron", "0 0 * * *", "--timezone", "Mars", code=2).err
    )
    assert "one of cron, every and at" in perdure("schedules", "add", "s", "greet", code=2).err
