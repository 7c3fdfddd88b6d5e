"""The clock that a store carries, and the time of its database."""

import pytest

from perdure.store.protocol import Store

ROUNDING = 0.02
"""Seconds: SQLite tells milliseconds, and a server's clock may be set."""


async def test_the_clock_runs_as_fast_as_database_time_does(store: Store) -> None:
    clock = store.clock
    before = clock.monotonic()
    began = await store.now()
    early = clock.monotonic()
    await clock.sleep(0.2)
    late = clock.monotonic()
    passed = (await store.now() - began).total_seconds()
    after = clock.monotonic()
    assert late - early >= 0.2
    assert late - early - ROUNDING <= passed <= after - before + ROUNDING


async def test_the_clock_limits_and_calls(store: Store) -> None:
    called: list[str] = []
    cancelled = store.clock.call_later(0, called.append, "cancelled")
    cancelled.cancel()
    store.clock.call_later(0, called.append, "called")
    with pytest.raises(TimeoutError):
        async with store.clock.timeout(0.01) as scope:
            await store.clock.sleep(3600)
    assert scope.expired()
    assert called == ["called"]
    async with store.clock.timeout(None) as unlimited:
        await store.clock.sleep(0)
    assert not unlimited.expired()
