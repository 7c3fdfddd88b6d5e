"""The manual clock: it moves only when it is moved, and what waits for it wakes in order."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from perdure.model.errors import InvalidInput
from perdure.store.open import open_store
from perdure.testing import ManualClock

START = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
AT_FIRST = START.replace(microsecond=123000)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_it_moves_only_when_it_is_moved() -> None:
    clock = ManualClock(START)
    assert clock.now() == clock.now() == AT_FIRST
    clock.advance("1h30m")
    clock.advance(0.25)
    clock.advance(timedelta(days=1))
    assert clock.now() == AT_FIRST + timedelta(days=1, hours=1, minutes=30, milliseconds=250)
    assert clock.monotonic() == 86400 + 5400 + 0.25
    clock.advance_to(clock.now())
    clock.advance_to(START + timedelta(days=2))
    assert clock.now() == AT_FIRST + timedelta(days=2, milliseconds=1)  # never before what was asked for
    clock.advance(0.3)
    assert clock.now() == AT_FIRST + timedelta(days=2, milliseconds=301)


def test_it_begins_in_the_present() -> None:
    before = datetime.now(UTC)
    assert before - timedelta(milliseconds=1) <= ManualClock().now() <= datetime.now(UTC)


@pytest.mark.parametrize("duration", [-1, "-5s", "soon", float("nan"), True])
def test_it_refuses_what_is_no_duration(duration: object) -> None:
    clock = ManualClock(START)
    with pytest.raises(InvalidInput):
        clock.advance(duration)  # type: ignore[arg-type]
    assert clock.now() == AT_FIRST


def test_it_never_goes_back() -> None:
    clock = ManualClock(START)
    with pytest.raises(InvalidInput, match="never goes back"):
        clock.advance_to(START - timedelta(seconds=1))
    for naive in (datetime(2032, 1, 1), START.replace(tzinfo=None)):  # noqa: DTZ001  that is the point
        with pytest.raises(InvalidInput, match="timezone-aware"):
            clock.advance_to(naive)
    with pytest.raises(InvalidInput, match="timezone-aware"):
        ManualClock(START.replace(tzinfo=None))


async def test_sleepers_wake_when_it_has_moved_so_far_and_in_order() -> None:
    clock = ManualClock(START)
    woken: list[str] = []

    async def sleep(name: str, length: str) -> None:
        await clock.sleep(length)
        woken.append(name)

    tasks = [asyncio.create_task(sleep(*each)) for each in (("b", "2m"), ("a", "1m"), ("c", "3m"))]
    await turns()
    assert clock.next_timer() == AT_FIRST + timedelta(minutes=1)
    clock.advance("59.999s")
    await turns()
    assert woken == []
    clock.advance("1ms")
    await turns()
    assert woken == ["a"]
    clock.advance("1h")
    await asyncio.gather(*tasks)
    assert woken == ["a", "b", "c"]
    assert clock.next_timer() is None


async def test_a_cancelled_sleep_leaves_nothing() -> None:
    clock = ManualClock(START)
    task = asyncio.create_task(clock.sleep("1h"))
    await turns()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert clock.next_timer() is None
    assert not clock.asleep
    clock.advance("2h")


async def test_no_sleep_at_all_does_not_wait() -> None:
    await ManualClock(START).sleep(0)


async def test_a_timeout_cuts_off_when_the_clock_says_so() -> None:
    clock = ManualClock(START)

    async def limited(seconds: float | None) -> None:
        async with clock.timeout(seconds) as scope:
            try:
                await asyncio.Event().wait()
            finally:
                assert scope.expired() is (seconds is not None)

    task = asyncio.create_task(limited(60))
    endless = asyncio.create_task(limited(None))
    await turns()
    clock.advance(59)
    await turns()
    assert not task.done()
    clock.advance(1)
    with pytest.raises(TimeoutError):
        await task
    assert not endless.done()
    endless.cancel()
    await asyncio.gather(endless, return_exceptions=True)


async def test_a_timeout_that_is_kept_does_nothing_later() -> None:
    clock = ManualClock(START)
    async with clock.timeout(60) as scope:
        clock.advance(30)
    clock.advance(60)
    await turns()
    assert not scope.expired()


async def test_it_may_be_moved_from_another_thread() -> None:
    clock = ManualClock(START)
    task = asyncio.create_task(clock.sleep("1h"))
    await turns()
    thread = threading.Thread(target=clock.advance, args=("1h",))
    thread.start()
    async with asyncio.timeout(20):
        await task
    thread.join()


async def test_it_is_the_time_of_the_database() -> None:
    clock = ManualClock(START)
    store = await open_store("memory:", clock=clock)
    try:
        await store.schema.migrate()
        assert await store.now() == clock.now() == AT_FIRST
        clock.advance("400d 7h 1.001s")
        assert await store.now() == clock.now()
        assert store.clock is clock
    finally:
        await store.close()


async def test_only_a_database_in_memory_takes_it(tmp_path: object) -> None:
    for url in (f"sqlite:///{tmp_path}/perdure.db", "postgresql://nobody@localhost/nowhere"):
        with pytest.raises(InvalidInput, match="memory"):
            await open_store(url, clock=ManualClock())
