"""SIGKILL of workers and launchers while coding CLIs run: no process is left, no task is lost or doubled, no slot leaks.

PERDURE_FLEET_KILLS: how many on each store (10). PERDURE_FLEET_SEED: what is killed when, as far as a seed decides it.
`make soak ARGS=tasks` does more of it.
"""

import os
import random
import sys
from pathlib import Path

import pytest

from tests.crash.fleet import Fleet, Setting

pytestmark = [
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descendants are known on Linux alone"),
]

KILLS = int(os.environ.get("PERDURE_FLEET_KILLS", "10"))
SEED = int(os.environ.get("PERDURE_FLEET_SEED") or random.randrange(1_000_000))


async def test_killed_while_clis_run(file_store_url: str, tmp_path: Path) -> None:
    result = await Fleet(Setting(file_store_url, str(tmp_path / "fleet")), KILLS, SEED).run()
    assert result.faults == [], f"to repeat: PERDURE_FLEET_SEED={SEED} PERDURE_FLEET_KILLS={KILLS}"
    assert result.kills >= KILLS
    assert result.tasks >= 12
    assert result.runs >= result.tasks
    assert result.most_runs > 1
