"""Signals: stored once, taken once, by the oldest wait for their key, whichever of the two comes first."""

import asyncio
from itertools import chain
from typing import Any
from uuid import UUID

import pytest

from perdure.model.effects import Effect
from perdure.model.errors import JobNotFound, SignalConflict, SignalTooLate
from perdure.model.ids import uuid7
from perdure.model.jobs import Lease, Outcome, Wait
from perdure.model.signals import NewSignal, Signal
from perdure.model.waits import SIGNAL
from perdure.store.protocol import Store
from tests.conformance.support import (
    HOUR,
    S,
    checked_log,
    claim,
    claimable,
    enqueue,
    event,
    later,
    near,
    outcome,
    started,
)


async def send(
    store: Store, job: Lease | UUID, key: str = "paid", payload: str = "1", caller_id: str | None = None
) -> Signal:
    job_id = job if isinstance(job, UUID) else job.job_id
    return await store.signals.send_signal(NewSignal(uuid7(), job_id, key, payload, caller_id, "ann", "test"))


async def wait_for(store: Store, lease: Lease, *waits: Wait) -> None:
    opened = [
        event("wait_started", f'{{"key": "{w.key}", "kind": "signal", "subject": "{w.subject_id}"}}') for w in waits
    ]
    effects: list[Effect] = [effect for wait in waits for effect in SIGNAL.opens(wait)]
    await store.leases.record(lease, opened, effects=effects)


def paid(key: str = "paid") -> Wait:
    return Wait(key, "signal", None, "paid")


async def taken(store: Store, lease: Lease) -> dict[str | None, list[Any]]:
    """The payloads of the job's signals, by the key of the wait that has them."""
    found: dict[str | None, list[Any]] = {}
    for signal in await store.signals.list_signals(lease.job_id):
        found.setdefault(signal.wait_key, []).append(signal.payload)
    return found


async def answered(store: Store, lease: Lease) -> dict[str, bool]:
    return {wait.key: wait.answered_at is not None for wait in (await store.jobs.get_job(lease.job_id)).waits}


async def test_one_that_comes_early_is_kept_until_a_wait_begins(store: Store) -> None:
    job_id = await enqueue(store)
    sent = await send(store, job_id, payload='{"amount": 3}')
    assert (sent.pending, sent.payload, sent.actor, sent.via) == (True, {"amount": 3}, "ann", "test")
    assert near(sent.created_at, await store.now())
    lease = (await claim(store, job_id)).lease
    assert await store.signals.list_signals(job_id, pending=True) == [sent]
    assert await store.signals.bound_signal(job_id, "paid") is None
    await wait_for(store, lease, paid())
    assert await answered(store, lease) == {"paid": True}
    bound = await store.signals.bound_signal(job_id, "paid")
    assert bound is not None
    assert (bound.id, bound.pending, bound.wait_key) == (sent.id, False, "paid")
    assert await store.signals.list_signals(job_id, pending=True) == []
    await store.leases.finish(lease, Outcome(S.PARKED))
    assert await claimable(store, job_id)
    await checked_log(store, job_id)


@pytest.mark.parametrize("suspended", [S.PARKED, S.WAITING_FOR_APPROVAL])
async def test_one_wakes_the_job_that_is_suspended_on_it(store: Store, suspended: S) -> None:
    lease = await started(store)
    await wait_for(store, lease, paid(), Wait("other", "signal", await later(store, HOUR), "other"))
    await store.leases.finish(lease, Outcome(suspended))
    assert (await send(store, lease, "another")).pending
    assert not await claimable(store, lease.job_id)
    assert (await send(store, lease)).wait_key == "paid"
    assert await answered(store, lease) == {"paid": True, "other": False}
    assert await claimable(store, lease.job_id)
    log = await checked_log(store, lease.job_id)
    received = [e.payload for e in log if e.type == "signal_received"]
    assert [(e["subject"], e.get("key"), e["actor"]) for e in received] == [
        ("another", None, "ann"),
        ("paid", "paid", "ann"),
    ]


@pytest.mark.parametrize("waiting", [False, True])
async def test_one_answers_the_wait_of_an_attempt_that_goes_on(store: Store, waiting: bool) -> None:
    lease = await started(store)
    await wait_for(store, lease, paid())
    await store.leases.set_waiting(lease, waiting)
    await send(store, lease)
    wait = await store.leases.read_wait(lease, "signal", "paid")
    assert wait is not None
    assert near(wait.answered_at, await store.now())
    assert (await store.jobs.get_job(lease.job_id)).due_at is None
    await store.leases.record(lease, [event("wait_completed", '{"key": "paid", "kind": "signal"}')])
    await checked_log(store, lease.job_id)


async def test_the_oldest_signal_goes_to_the_oldest_wait(store: Store) -> None:
    lease = await started(store)
    for n in (1, 2):
        await send(store, lease, payload=str(n))
    await wait_for(store, lease, paid(), paid("paid#2"), paid("paid#3"), paid("paid#10"))
    for n in (3, 4, 5):
        await send(store, lease, payload=str(n))
    assert await taken(store, lease) == {"paid": [1], "paid#2": [2], "paid#3": [3], "paid#10": [4], None: [5]}


async def test_a_wait_that_is_opened_again_keeps_its_signal(store: Store) -> None:
    lease = await started(store)
    for n in (1, 2):
        await send(store, lease, payload=str(n))
    for _ in range(2):
        await wait_for(store, lease, paid())
    assert await taken(store, lease) == {"paid": [1], None: [2]}
    await store.leases.record(lease, [], effects=[Effect("close_waits", {"kind": "signal", "key": "paid"})])
    await wait_for(store, lease, paid())  # its row had been deleted
    assert await taken(store, lease) == {"paid": [1], None: [2]}
    assert await answered(store, lease) == {"paid": True}


async def test_a_wait_that_ends_without_its_signal_gives_it_back(store: Store) -> None:
    lease = await started(store)
    await wait_for(store, lease, paid())
    await send(store, lease, payload="1")
    await wait_for(store, lease, paid("paid#2"))
    await send(store, lease, payload="2")
    await send(store, lease, payload="3")
    assert await taken(store, lease) == {"paid": [1], "paid#2": [2], None: [3]}
    for key in ("paid#2", "paid"):
        await store.leases.record(lease, [event()], effects=SIGNAL.closes(paid(key), answered=False))
    assert await taken(store, lease) == {None: [1, 2, 3]}
    await wait_for(store, lease, paid("paid#3"))
    assert await taken(store, lease) == {"paid#3": [1], None: [2, 3]}
    await wait_for(store, lease, paid("paid#4"), paid("paid#5"), paid("paid#6"))
    # as one ends without its signal, the one that has none takes it
    await store.leases.record(lease, [event()], effects=SIGNAL.closes(paid("paid#4"), answered=False))
    assert await taken(store, lease) == {"paid#3": [1], "paid#6": [2], "paid#5": [3]}
    assert await answered(store, lease) == {"paid#3": True, "paid#5": True, "paid#6": True}
    await store.leases.record(lease, [event()], effects=SIGNAL.closes(paid("paid#3"), answered=True))
    assert (await taken(store, lease))["paid#3"] == [1]


async def test_one_id_is_one_signal(store: Store) -> None:
    lease, other = await started(store), await started(store)
    first = await send(store, lease, caller_id="a", payload='{"n": 1, "m": [true]}')
    assert await send(store, lease, caller_id="a", payload='{"m":[true],"n":1}') == first
    for key, payload in (("paid", '{"n": 1, "m": [1]}'), ("unpaid", '{"n": 1, "m": [true]}')):
        with pytest.raises(SignalConflict, match="'a'"):
            await send(store, lease, key, payload, "a")
    assert (await send(store, other, caller_id="a")).id != first.id
    assert (await send(store, lease, caller_id="b")).id != first.id
    assert len(await store.signals.list_signals(lease.job_id)) == 2
    await store.leases.finish(lease, outcome(S.COMPLETED))
    assert (await send(store, lease, caller_id="a", payload='{"n": 1, "m": [true]}')).id == first.id
    log = await checked_log(store, lease.job_id)
    assert [e.type for e in log].count("signal_received") == 2


@pytest.mark.parametrize("status", [S.COMPLETED, S.FAILED, S.CANCELLED, S.DEADLETTER])
async def test_a_job_that_has_ended_takes_none(store: Store, status: S) -> None:
    lease = await started(store)
    await store.leases.finish(lease, outcome(status))
    with pytest.raises(SignalTooLate, match=status):
        await send(store, lease)
    assert await store.signals.list_signals(lease.job_id) == []


async def test_a_job_of_another_tenant_is_none(file_store: Store, neighbour: Store) -> None:
    lease = await started(file_store)
    await wait_for(file_store, lease, paid())
    with pytest.raises(JobNotFound):
        await send(neighbour, lease)
    await send(file_store, lease)
    assert await neighbour.signals.list_signals(lease.job_id) == []
    assert await neighbour.signals.bound_signal(lease.job_id, "paid") is None


async def test_many_senders_at_once(file_store: Store, twin: Store) -> None:
    lease = await started(file_store)

    async def opening() -> None:
        for n in range(1, 21):
            await wait_for(file_store, lease, paid(f"paid#{n}"))

    async def sending(store: Store, first: int) -> None:
        for n in range(first, 20, 4):
            await send(store, lease, payload=str(n), caller_id=str(n))
            await send(store, lease, payload=str(n), caller_id=str(n))

    senders = (sending(store, n) for n, store in enumerate((file_store, twin, file_store, twin)))
    await asyncio.gather(opening(), *senders)
    found = await taken(file_store, lease)
    assert found.keys() == {f"paid#{n}" for n in range(1, 21)}
    assert sorted(chain.from_iterable(found.values())) == list(range(20))
    assert all((await answered(file_store, lease)).values())
    await checked_log(file_store, lease.job_id)
