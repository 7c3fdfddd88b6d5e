"""Writes that one attempt makes at the same time go together, and each caller gets its own answer."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import App, JobContext
from perdure.model.effects import Effect, close_wait, patch_state
from perdure.model.errors import InvalidInput, LeaseLost
from perdure.model.events import NewEvent
from perdure.runtime.shared_writes import MOST_CALLS, MOST_TEXT, SharedWrites
from tests.runtime.support import PATIENCE, keys, soon, working

PARTS = 120


class Leases:
    """Holds each write back until it is let go."""

    def __init__(self) -> None:
        self.written: list[list[str]] = []
        self.version = 1
        self.gate = asyncio.Event()
        self.refused: dict[str, Exception] = {}

    async def record(self, _lease: object, events: Sequence[NewEvent], *, effects: Sequence[Effect]) -> int:
        await self.gate.wait()
        payloads = [event.payload for event in events]
        for payload in payloads:
            if payload in self.refused:
                raise self.refused[payload]
        self.written.append(payloads + [effect.statement for effect in effects])
        self.version += len(events)
        return self.version


def shared(leases: Leases) -> SharedWrites:
    store: Any = SimpleNamespace(leases=leases, clock=SimpleNamespace(monotonic=lambda: 0.0))
    leased: Any = SimpleNamespace(claimed=SimpleNamespace(lease=None), ttl=3.0, renewed=lambda asked_at, ttl: None)
    return SharedWrites(store, leased)


async def asked(writes: SharedWrites, *calls: tuple[Sequence[str], Sequence[Effect]]) -> list[asyncio.Task[int]]:
    """Calls in this order, which all wait."""
    tasks = [
        asyncio.create_task(writes.write([NewEvent("note", payload) for payload in payloads], effects))
        for payloads, effects in calls
    ]
    await asyncio.sleep(0)
    return tasks


async def test_what_comes_while_a_write_goes_on_is_written_together() -> None:
    leases = Leases()
    tasks = await asked(
        shared(leases), (["a"], ()), (["b", "c"], ()), (["d"], [patch_state(tokens=1)]), ((), [patch_state(tokens=2)])
    )
    leases.gate.set()
    assert await soon(asyncio.gather(*tasks)) == [2, 4, 5, 5]
    assert leases.written == [["a"], ["b", "c", "d", "patch_state", "patch_state"]]


async def test_other_effects_are_written_alone_and_in_their_turn() -> None:
    leases = Leases()
    closing = [close_wait("timer", "nap")]
    tasks = await asked(
        shared(leases), (["a"], ()), (["b"], ()), (["c"], ()), (["d"], closing), (["e"], ()), (["f"], ())
    )
    leases.gate.set()
    assert await soon(asyncio.gather(*tasks)) == [2, 3, 4, 5, 6, 7]
    assert leases.written == [["a"], ["b", "c"], ["d", "close_waits"], ["e", "f"]]


async def test_a_write_that_is_refused_does_not_refuse_those_it_came_with() -> None:
    leases = Leases()
    leases.refused["c"] = InvalidInput("not this one")
    tasks = await asked(shared(leases), (["a"], ()), (["b"], ()), (["c"], ()), (["d"], ()))
    leases.gate.set()
    found = await soon(asyncio.gather(*tasks, return_exceptions=True))
    assert found == [2, 3, leases.refused["c"], 4]
    assert leases.written == [["a"], ["b"], ["d"]]


async def test_a_lost_lease_refuses_all() -> None:
    leases = Leases()
    writes = shared(leases)
    tasks = await asked(writes, (["a"], ()), (["b"], ()), (["c"], ()))
    leases.refused = {payload: LeaseLost("gone") for payload in "abc"}
    leases.gate.set()
    found = await soon(asyncio.gather(*tasks, return_exceptions=True))
    assert [type(error) for error in found] == [LeaseLost] * 3
    leases.refused.clear()
    assert await soon(writes.write([NewEvent("note", "d")], ())) == 2


async def test_a_caller_that_is_cancelled_takes_its_write_back() -> None:
    leases = Leases()
    writes = shared(leases)
    first, second, third = await asked(writes, (["a"], ()), (["b"], ()), (["c"], ()))
    second.cancel()
    first.cancel()  # which has begun
    await asyncio.sleep(0)
    leases.gate.set()
    assert await soon(third) == 2
    assert leases.written == [["c"]]
    assert await soon(writes.write([NewEvent("note", "d")], ())) == 3


async def test_one_write_is_bounded() -> None:
    leases = Leases()
    large = "x" * (MOST_TEXT // 2 + 1)
    tasks = await asked(
        shared(leases), (["a"], ()), ([large], ()), ([large], ()), *(([str(n)], ()) for n in range(MOST_CALLS))
    )
    leases.gate.set()
    await soon(asyncio.gather(*tasks))
    assert [len(payloads) for payloads in leases.written] == [1, 1, MOST_CALLS, 1]


async def test_many_children_and_steps_at_once_are_few_writes(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.job
    async def part(ctx: JobContext, number: int) -> int:
        return number

    @app.job
    async def whole(ctx: JobContext) -> int:
        spawned = await asyncio.gather(*(ctx.spawn(part, n, key=f"part {n}") for n in range(PARTS)))
        steps = await asyncio.gather(*(ctx.step(f"step {n}", int, n) for n in range(PARTS)))
        return sum(await ctx.gather(*spawned)) + sum(steps)

    store = await app.open()
    handle = await app.enqueue(whole)
    writes: list[int] = []
    record = store.leases.record

    async def counted(lease: Any, events: Sequence[NewEvent], **given: Any) -> int:
        if lease.job_id == handle.id:
            writes.append(len(events))
        return await record(lease, events, **given)

    monkeypatch.setattr(store.leases, "record", counted)
    async with working(app):
        assert await handle.result(PATIENCE) == 2 * sum(range(PARTS))
    log = await handle.events()
    assert [event.version for event in log] == [*range(1, len(log) + 1)]
    assert len(keys(log, "child_spawned")) == PARTS
    assert sum(writes) >= 2 * PARTS
    assert len(writes) < PARTS
