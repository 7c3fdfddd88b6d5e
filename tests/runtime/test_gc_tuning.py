"""A process that is a worker for a while."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from perdure import App, JobContext
from perdure.runtime.gc_tuning import tuned_for_worker
from perdure.sync import Client


def _as_it_is() -> tuple[tuple[int, int, int], float]:
    return gc.get_threshold(), sys.getswitchinterval()


def test_a_worker_process_is_as_it_was_when_the_worker_has_ended() -> None:
    before = _as_it_is()
    with tuned_for_worker():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] > before[0][0]
        assert sys.getswitchinterval() < before[1]
    assert _as_it_is() == before
    assert gc.get_freeze_count() == 0


def test_run_worker_devotes_the_process_to_it(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'perdure.db'}")
    seen: list[int] = []

    @app.job
    async def look(ctx: JobContext) -> None:
        seen.append(gc.get_freeze_count())

    with Client(app) as client:
        client.enqueue(look)
    app.run_worker(once=True)
    assert seen[0] > 0
    assert gc.get_freeze_count() == 0


def test_two_workers_in_two_threads_leave_it_as_it_was() -> None:
    before = _as_it_is()
    one, other = tuned_for_worker(), tuned_for_worker()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert gc.get_threshold()[0] > before[0][0], "the other one goes on"
    other.__exit__(None, None, None)
    assert _as_it_is() == before
