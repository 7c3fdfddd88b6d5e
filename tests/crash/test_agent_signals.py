"""kill -9 around signals to an agent: each is given to one job, in one transaction, and is taken once."""

from uuid import UUID

import pytest

from perdure import App
from tests.crash.apps import Errand, Op, make_app, result_of
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended

pytestmark = pytest.mark.crash

ERRAND = Errand([Op("step", "one"), Op("signal", "paid"), Op("step", "last")])


async def prepared(app: App) -> None:
    await app.database.migrate()
    await app.agents.create("ann", kind="errand")


async def send(app: App) -> None:
    for key in ("paid", "paid", "other"):
        await app.agents.signal("ann", key, key, id=key)


@pytest.mark.parametrize(
    ("kill_at", "when"),
    [
        *((point, "early") for point in ("during claim", "after claim", "during record wait_started paid")),
        ("after record wait_started paid", "killed"),
        ("during finish PARKED", "killed"),
        ("during record wait_completed paid", "early"),
        ("after finish PARKED", "next"),
    ],
)
async def test_killed_at(crew: Crew, kill_at: str, when: str) -> None:
    """when: the signals come before there is a worker, after it was killed, or while another one is there."""
    async with make_app(crew.url) as app:
        await prepared(app)
        if when == "early":
            await send(app)
        handle = await app.enqueue("errand", ERRAND, agent="ann")
        first = crew.start(kill_at=kill_at)
        assert await first.ended() == -9
        if when == "killed":
            await send(app)
        second = crew.start()
        if when == "next":
            await send(app)
        await all_ended(app, [handle.id])
        await crew.dismiss(second)
        taken = {signal.key: signal.wait_key for signal in await app.jobs.signals(handle)}
        sent = {signal.key: signal.consumed_by_job_id for signal in (await app.agents.signals("ann")).items}
    assert taken == {"paid": "paid"} | ({"other": None} if when == "early" else {})
    assert sent == {"paid": handle.id, "other": handle.id if when == "early" else None}
    await ended_well(crew, handle.id)


@pytest.mark.parametrize(
    "kill_at", ["after record wait_started paid", "before deliver", "during deliver", "after deliver"]
)
async def test_killed_before_the_delivery(crew: Crew, kill_at: str) -> None:
    """The signals are pending as the wait for one begins: a second attempt gets none at its claim."""
    async with make_app(crew.url) as app:
        await prepared(app)
        handle = await app.enqueue("errand", ERRAND, agent="ann")
        first = crew.start(kill_at="before record node_finished one")
        assert await first.ended() == -9
        await send(app)
        second = crew.start(kill_at=kill_at)
        assert await second.ended() == -9
        third = crew.start()
        await all_ended(app, [handle.id])
        await crew.dismiss(third)
        taken = {signal.key: signal.wait_key for signal in await app.jobs.signals(handle)}
    assert taken == {"paid": "paid"}
    await ended_well(crew, handle.id)


async def ended_well(crew: Crew, job_id: UUID) -> None:
    case = (await check(crew.url, [job_id], at_rest=True)).of(job_id)
    assert case.status == "COMPLETED", case.log()
    assert case.job["result"] == result_of(ERRAND)
    assert case.keys("wait_started", "wait_completed") == ["paid", "paid"]


@pytest.mark.parametrize("kill_at", ["before take_signals", "during take_signals", "after take_signals"])
async def test_killed_while_a_handler_takes_all(crew: Crew, kill_at: str) -> None:
    errand = Errand([Op("step", "one"), Op("signals", "paid"), Op("step", "last")])
    async with make_app(crew.url) as app:
        await prepared(app)
        handle = await app.enqueue("errand", errand, agent="ann")
        first = crew.start(kill_at="before record node_finished one")
        assert await first.ended() == -9
        await send(app)
        second = crew.start(kill_at=kill_at)
        assert await second.ended() == -9
        third = crew.start()
        await all_ended(app, [handle.id])
        await crew.dismiss(third)
        signals = await app.jobs.signals(handle)
        events = await app.jobs.events(handle.id)
    assert [(signal.key, signal.wait_key, signal.pending) for signal in signals] == [
        ("paid", None, False),
        ("other", None, False),
    ]
    taken = [
        each["signal"] for event in events if event.type == "signals_taken" for each in (event.payload or {})["signals"]
    ]
    assert taken == [str(signal.id) for signal in signals]
    case = (await check(crew.url, [handle.id], at_rest=True)).of(handle.id)
    assert (case.status, case.job["result"]) == ("COMPLETED", result_of(errand)), case.log()
