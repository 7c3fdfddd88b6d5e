"""Commands on many jobs by filters, edit and delete."""

import json

from tests.cli.conftest import Perdure


def start(perdure: Perdure, number: int, *more: str) -> list[str]:
    return [perdure("jobs", "start", "greet", *more, "-o", "id").out.strip() for _ in range(number)]


def test_jobs_are_cancelled_by_filters(perdure: Perdure) -> None:
    start(perdure, 3)
    start(perdure, 1, "--queue", "mail")
    dry = perdure("jobs", "cancel", "--queue", "default", "--dry-run")
    assert dry.out.startswith("3 jobs (3 PENDING) would be cancelled\n")
    assert json.loads(perdure("jobs", "cancel", "--kind", "greet", "--dry-run", "--json").out)["counts"] == {
        "PENDING": 4
    }
    refused = perdure("jobs", "cancel", "--queue", "default", code=2)
    assert "Cancel 3 jobs (3 PENDING)?" in refused.err
    assert "--yes" in refused.err
    assert perdure("jobs", "cancel", "--queue", "default", "--yes").out == "cancelled 3 of 3 jobs (3 PENDING)\n"
    assert perdure("jobs", "cancel", "--queue", "default", "--yes").out == "no job matches\n"
    assert json.loads(perdure("jobs", "count", "--json").out) == {"PENDING": 1, "CANCELLED": 3}
    assert perdure("jobs", "rerun", "--status", "cancelled", "--yes").out == "rerun 3 of 3 jobs (3 CANCELLED)\n"
    assert perdure("jobs", "rerun", "--status", "cancelled", "--yes").out == "no job matches\n"
    assert perdure("jobs", "delete", "--status", "cancelled", "--yes").out == "deleted 3 of 3 jobs (3 CANCELLED)\n"
    assert perdure("jobs", "edit", "--kind", "greet", "--priority", "9", "-y").out == "edited 4 of 4 jobs (4 PENDING)\n"
    assert perdure("jobs", "retry-now", "--kind", "greet", "-y").out == "no job matches\n"


def test_ids_or_filters_are_needed_and_not_both(perdure: Perdure) -> None:
    [id] = start(perdure, 1)
    for verb in ("cancel", "retry-now", "rerun", "delete"):
        assert "give ids, or filters" in perdure("jobs", verb, code=2).err
        assert "not both" in perdure("jobs", verb, id, "--kind", "greet", code=2).err
        assert "--dry-run counts" in perdure("jobs", verb, id, "--dry-run", code=2).err
    assert "nothing to change" in perdure("jobs", "edit", id, code=2).err
    assert "--payload is for jobs" in perdure("jobs", "edit", "--kind", "greet", "--payload", "1", code=2).err
    assert "cannot be deleted" in perdure("jobs", "delete", "--status", "running", "--yes", code=2).err


def test_a_job_is_edited_and_deleted(perdure: Perdure) -> None:
    [id] = start(perdure, 1)
    done = perdure("jobs", "edit", id, "--priority", "7", "--delay", "1h", "--payload", '"tea"', "--reason", "asked")
    assert "priority 7, due 20" in done.out
    job = perdure("jobs", "get", id, "--json").only
    assert (job["priority"], job["payload"]) == (7, "tea")
    assert "job_edited" in perdure("jobs", "events", id).out
    assert "cancel it first" in perdure("jobs", "delete", id, "--yes", code=5).err
    perdure("jobs", "cancel", id)
    assert "cannot be edited" in perdure("jobs", "edit", id, "--priority", "1", code=5).err
    perdure("jobs", "delete", id, code=2)
    assert "is deleted" in perdure("jobs", "delete", id, "--yes").out
    perdure("jobs", "get", id, code=3)
