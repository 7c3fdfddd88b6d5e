"""A process that is a worker for a while."""

from __future__ import annotations

import gc
import sys

from perdure import App, JobContext
from perdure.runtime.process import devoted


def test_a_worker_process_is_as_it_was_when_the_worker_has_ended() -> None:
    before = gc.get_threshold(), sys.getswitchinterval(), gc.get_freeze_count()
    with devoted():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] > before[0][0]
    assert (gc.get_threshold(), sys.getswitchinterval(), gc.get_freeze_count()) == before


def test_run_worker_devotes_the_process_to_it() -> None:
    app = App("memory:")
    seen: list[int] = []

    @app.job
    async def look(ctx: JobContext) -> None:
        seen.append(gc.get_freeze_count())

    original = app.work

    async def work(**options: object) -> None:
        await app.enqueue(look)
        await original(once=True)

    app.work = work  # type: ignore[method-assign]  # the script's own part, inside run_worker's loop
    app.run_worker()
    assert seen[0] > 0
    assert gc.get_freeze_count() == 0
