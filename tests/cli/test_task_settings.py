"""Settings of coding CLIs, in the design document's words."""

from pathlib import Path
from typing import Any

import pytest

from perdure import App
from perdure.config import load_settings
from perdure.model.errors import ConfigError
from perdure.runtime.lease_times import LeaseLength
from tests.cli.conftest import Perdure

DOCUMENT = """
[cli]
db.url = "sqlite:///cli_worker.db"
lease.ttl = "90s"
heartbeat = "30s"
max_attempts = 3
backoff_base = "30s"
work_dir = "/tmp/scheduler-work/"
inline_threshold = "1MiB"
"""
NAMES = ("lease_ttl", "heartbeat", "max_attempts", "backoff_base", "work_dir", "inline_threshold")


def test_the_document_s_values_are_the_defaults(place: Path) -> None:
    before = load_settings(environ={}, directory=place)
    (place / "perdure.toml").write_text(DOCUMENT)
    after = load_settings(environ={}, directory=place)
    for name in NAMES:
        assert after[f"cli_{name}"] == before[f"cli_{name}"], name
        assert before.origins[f"cli_{name}"] == "default"
        assert after.origins[f"cli_{name}"].endswith("perdure.toml")
    assert after["database_url"] == "sqlite:///cli_worker.db"


def test_they_are_shown_and_come_from_the_environment(perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_CLI_LEASE_TTL", "2m")
    monkeypatch.setenv("PERDURE_CLI_TASK_ENV", "TASK_TOKEN, OTHER")
    found = {item["name"]: item for item in perdure("config", "ls", "-o", "json").json["items"]}
    assert all(f"cli_{name}" in found for name in NAMES)
    settings = load_settings()
    assert (settings["cli_lease_ttl"], settings["cli_task_env"]) == (120.0, ("TASK_TOKEN", "OTHER"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[cli]\nlease.tll = 5", "unknown settings: cli_lease_tll"),
        ("[cli]\ndb.name = 'x'", "db of .cli. has one key, url"),
        ("database_url = 'memory:'\n[cli]\ndb.url = 'memory:'", "database_url and, in .cli., db.url"),
        ("[cli]\nheartbeat = '0s'", "cli_heartbeat .* at least 0.1 seconds"),
    ],
)
def test_what_is_wrong_is_named(place: Path, text: str, says: str) -> None:
    (place / "perdure.toml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_settings(environ={}, directory=place)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"cli.codex": LeaseLength(90.0, 30.0)}),
        ({"lease": "3s"}, {}),
        ({"lease": "3s", "cli_lease_ttl": "9s", "cli_heartbeat": "3s"}, {"cli.codex": LeaseLength(9.0, 3.0)}),
    ],
)
async def test_the_lease_of_tasks(
    place: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], expected: dict[str, LeaseLength]
) -> None:
    (place / "codex").write_text("#!/bin/sh\n")
    (place / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", str(place), prepend=":")
    app = App("memory:", settings=load_settings({"database_url": "memory:", **changes}))
    app.serve_tools("codex")

    @app.job
    async def other(ctx: object) -> None: ...

    async with app:
        assert (await app.worker()).options.kind_leases == expected
        assert (await app.worker(lease=5)).options.kind_leases == {}, "what is given to a worker is for all its jobs"


async def test_a_heartbeat_that_is_too_seldom(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "codex").write_text("#!/bin/sh\n")
    (place / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", str(place), prepend=":")
    app = App("memory:", settings=load_settings({"database_url": "memory:", "cli_lease_ttl": "30s"}))
    app.serve_tools("codex")
    async with app:
        with pytest.raises(ConfigError, match="more than half of cli_lease_ttl"):
            await app.worker()
