"""Leases whose length depends on the kind of their job: how long they are, and how often they are renewed."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from perdure.model.ids import uuid7
from perdure.model.jobs import Lease
from perdure.runtime.lease import LeaseManager
from perdure.runtime.lease_times import LeaseLength


class Over(Exception):
    """The time of a test is over."""


class Clock:
    """Goes on whenever it is slept by; raises Over after `until` seconds."""

    def __init__(self, until: float) -> None:
        self.now = 0.0
        self._until = until

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > self._until:
            raise Over


class Leases:
    """Stands for those of a store; renews what it is asked to, and remembers when, to which length, and which."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.leases = self
        self.asked: list[tuple[float, float, int]] = []

    async def heartbeat(self, leases: Sequence[Lease], *, ttl: float, **_: Any) -> set[UUID]:
        self.asked.append((self.clock.now, ttl, len(leases)))
        return {lease.job_id for lease in leases}


def claimed(kind: str) -> Any:
    id = uuid7()
    return SimpleNamespace(id=id, kind=kind, lease=Lease(id, 1, "w"), concurrency_key=None)


async def test_a_kind_is_renewed_to_its_own_length_as_often_as_it_says() -> None:
    store = Leases(Clock(until=75.0))
    kinds = {"long": LeaseLength(90.0, 30.0)}
    manager = LeaseManager(store, "w", 30.0, lambda _: None, kinds=kinds)  # type: ignore[arg-type]  # what it uses of a store
    usual, other, long = manager.add_all([claimed("usual"), claimed("usual"), claimed("long")], 0.0, 0.0)
    assert {leased.ttl for leased in (usual, other, long)} == {30.0}, "the claim knows one length"
    with pytest.raises(Over):
        await manager.renew_forever()
    usually = [(10.0 * n, 30.0, 2) for n in range(1, 8)]
    assert sorted(store.asked) == sorted([*usually, (10.0, 90.0, 1), (40.0, 90.0, 1), (70.0, 90.0, 1)])
    assert (usual.ttl, usual.valid_until) == (30.0, 100.0)
    assert (long.ttl, long.valid_until) == (90.0, 160.0)


async def test_a_kind_may_be_renewed_more_often_than_the_others() -> None:
    store = Leases(Clock(until=12.0))
    manager = LeaseManager(store, "w", 30.0, lambda _: None, kinds={"short": LeaseLength(9.0, 3.0)})  # type: ignore[arg-type]  # as above
    (short,) = manager.add_all([claimed("short")], 0.0, 0.0)
    with pytest.raises(Over):
        await manager.renew_forever()
    assert store.asked == [(3.0 * n, 9.0, 1) for n in range(1, 5)]
    assert short.ttl == 9.0


async def test_without_such_kinds_all_are_renewed_together() -> None:
    store = Leases(Clock(until=30.0))
    manager = LeaseManager(store, "w", 30.0, lambda _: None, kinds={})  # type: ignore[arg-type]  # as above
    manager.add_all([claimed("a"), claimed("b")], 0.0, 0.0)
    with pytest.raises(Over):
        await manager.renew_forever()
    assert store.asked == [(10.0, 30.0, 2), (20.0, 30.0, 2), (30.0, 30.0, 2)]
