"""The ends of attempts on their way into the store."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perdure import App, JobContext, Request, Status
from perdure.model.errors import LeaseLost
from perdure.model.ids import uuid7
from perdure.model.jobs import Lease, Outcome
from perdure.observe import job_log
from perdure.runtime import ends
from tests.runtime.support import soon


async def test_a_log_that_raises_keeps_no_end_from_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's own log processors see each line."""
    raised: list[Any] = []
    written: list[Lease] = []

    def broken(leased: Any) -> None:
        raise RuntimeError("the log is broken")

    monkeypatch.setattr(ends, "log_lost_lease", broken)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context["exception"]))
    lost, *live = [
        cast("Any", SimpleNamespace(claimed=SimpleNamespace(lease=Lease(uuid7(), 1, "w")), run=None)) for _ in range(4)
    ]

    async def finish_many(some: Sequence[tuple[Lease, Outcome]]) -> list[Status | Exception]:
        written.extend(lease for lease, _ in some)
        if len(written) == 2:
            for leased in live[1:]:  # they come while the first ones are being written
                waiting.add(leased, Outcome(Status.COMPLETED))
        return [LeaseLost("it is gone") if lease == lost.claimed.lease else Status.COMPLETED for lease, _ in some]

    removed: list[Any] = []
    store, leases = (
        SimpleNamespace(leases=SimpleNamespace(finish_many=finish_many)),
        SimpleNamespace(remove=removed.append),
    )
    waiting = ends.Ends(cast("Any", store), cast("Any", leases), None, lambda: None)
    for leased in (lost, live[0]):
        waiting.add(leased, Outcome(Status.COMPLETED))
    await soon(waiting.wait())
    assert written == [leased.claimed.lease for leased in (lost, *live)]
    assert removed == [lost, *live]
    assert waiting.unwritten == 0
    assert len(raised) == 1


async def test_a_log_of_jobs_that_raises_ends_no_worker(file_store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_LOG_JOBS", "true")
    seen: list[str] = []

    class Broken:
        def info(self, event: str, **_: Any) -> None:
            seen.append(event)
            raise BrokenPipeError

    monkeypatch.setattr(job_log, "log", Broken())
    async with App(file_store_url, migrate=True) as app:

        @app.job
        async def quick(ctx: JobContext) -> None:
            pass

        handles = await app.enqueue_many([Request(quick) for _ in range(20)])
        await app.work(once=True)
        assert [await handle.status() for handle in handles] == ["COMPLETED"] * 20
    assert seen == ["attempt ended"] * 20
