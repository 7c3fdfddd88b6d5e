"""The example of a fan-out: 1,000 children and their parent."""

from pathlib import Path

import pytest

from perdure import App
from tests.docs.support import load_example


async def test_the_children_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/perdure.db"
    monkeypatch.setenv("PERDURE_DATABASE_URL", url)
    assert await load_example("fan_out").main(20_000) == 2262
    async with App(url) as app:
        assert await app.jobs.count(by="kind") == {"primes_below": 1, "count_primes": 1000}
        [parent] = (await app.jobs.list(kind="primes_below")).items
        log = [event.type for event in await app.jobs.events(parent.id)]
        assert log.count("child_spawned") == 1000
        assert log.count("run_started") == 2, "it was woken once"
    assert await load_example("fan_out").main(20_000) == 2262, "the same job"
