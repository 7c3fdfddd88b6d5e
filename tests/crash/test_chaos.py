"""The harness that users can run, on both stores: everything is killed, stopped and cut off at random, and nothing is lost.

Meanwhile the tables themselves are read again and again: they are in order at every moment.

PERDURE_CHAOS_KILLS: how many on each store (220, so that both take a minute). PERDURE_CHAOS_SEED: what happens, as far as a
seed decides it.
"""

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import pytest

from perdure.chaos.harness import Chaos, Plan
from perdure.chaos.report import Report
from perdure.model.errors import StoreUnreachable
from tests.crash.invariants import check
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.crash, pytest.mark.slow]

KILLS = int(os.environ.get("PERDURE_CHAOS_KILLS", "220"))
SEED = int(os.environ.get("PERDURE_CHAOS_SEED") or random.randrange(1_000_000))


async def test_on_sqlite(tmp_path: Path) -> None:
    report = await raged(Plan(f"sqlite:///{tmp_path}/chaos.db", KILLS, SEED, keep=True, directory=tmp_path))
    assert report.notes == ["a SQLite file has no connections to cut and no server to restart"]


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that may be restarted."""
    with PostgresServer(own=True) as server:
        yield server


async def test_on_postgres(own_server: PostgresServer, tmp_path: Path) -> None:
    async def restart() -> None:
        await asyncio.to_thread(own_server.restart)

    report = await raged(
        Plan(own_server.create_database("chaos"), KILLS, SEED, keep=True, restart=restart, directory=tmp_path)
    )
    assert report.notes == []
    assert {"cuts", "answers lost", "sessions ended", "restarts"} <= set(+report.done)


async def raged(plan: Plan) -> Report:
    """Run a plan while the tables are looked at; everything is as it must be."""
    assert plan.url is not None
    chaos = Chaos(plan)
    with repeatable(plan):
        excused = RESTARTING if plan.restart else ()
        looking = asyncio.create_task(look_on(plan.url, chaos.report, excused))
        try:
            async with asyncio.timeout(400):
                report = await chaos.run()
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking
        requested = chaos.requested
        await check(plan.url, set(requested.jobs.values()) - requested.fleeting, at_rest=True)
        print(report)
        assert report.faults == []
        assert report.kills == plan.kills
        assert sum(report.jobs.values()) == report.checked >= len(chaos.requested.jobs) > 20
        assert {"workers", "terms", "stops", "cancels"} <= set(+report.done)
        assert {"steps", "tool calls", "taken over", "approvals decided", "events"} <= set(+report.found)
    return report


RESTARTING = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    StoreUnreachable,
)
"""What a reader meets while the server is being restarted: of the driver, and of perdure's own fsck."""


async def look_on(url: str, report: Report, excused: tuple[type[Exception], ...]) -> None:
    """Read the tables while harm is done. excused: errors that say nothing about them."""
    while report.phase != "proof":
        if report.phase != "starting":
            with suppress(*excused):
                await check(url)
        await asyncio.sleep(2)


@contextmanager
def repeatable(plan: Plan) -> Iterator[None]:
    """Where it fails, it says how to repeat it."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"to repeat: PERDURE_CHAOS_SEED={plan.seed} PERDURE_CHAOS_KILLS={plan.kills}")
        raise
