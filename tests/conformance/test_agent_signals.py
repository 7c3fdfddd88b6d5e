"""Signals to agents: each goes to one job of the agent, once, at its first claim, with a message, or by a wait."""

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from perdure.model.agents import key_of_agent
from perdure.model.effects import look_at_mailbox
from perdure.model.errors import AgentNotFound, AgentPaused, LeaseLost, SignalConflict
from perdure.model.ids import new_event_id, uuid7
from perdure.model.jobs import ClaimedJob, Wait
from perdure.model.signals import MOST_BOUND, AgentSignal, NewAgentSignal, NewSignal
from perdure.model.states import Status
from perdure.model.waits import SIGNAL
from perdure.runtime.context.waits import started
from perdure.store.protocol import Store
from tests.conformance.healthy_jobs import fsck
from tests.conformance.support import KINDS, claim, enqueue, outcome, own_queue
from tests.conformance.test_agents import agent, message
from tests.conformance.test_received_messages import waiting


async def send(
    store: Store,
    key: str = "stop",
    payload: str = "1",
    *,
    to: str = "ann",
    caller_id: str | None = None,
    expires_in: float | None = None,
) -> AgentSignal:
    new = NewAgentSignal(uuid7(), to, key, payload, caller_id, expires_in, "bob", "test")
    return await store.signals.send_agent_signal(new)


async def job_of(store: Store, agent_id: str = "ann", **changes: Any) -> UUID:
    key = key_of_agent(agent_id)
    return await enqueue(store, agent_id=agent_id, concurrency_key=key, max_concurrent=100, **changes)


async def wait_for(store: Store, job: ClaimedJob, key: str = "stop", wait_key: str | None = None) -> None:
    wait = Wait(wait_key or key, SIGNAL.name, None, key)
    await store.leases.record(job.lease, [started(wait)], effects=(*SIGNAL.opens(wait), look_at_mailbox(None)))


async def known_at_start(store: Store, job_id: UUID) -> list[Any]:
    events = await store.jobs.list_events(job_id, types=["signal_received"])
    return [json.loads(e.payload["payload"]) for e in events if e.payload is not None and "payload" in e.payload]


async def states(store: Store, agent_id: str = "ann") -> list[str]:
    return [signal.state for signal in reversed((await store.signals.list_agent_signals(agent_id)).items)]


async def test_the_first_claim_of_a_job_of_the_agent_takes_what_is_pending(store: Store) -> None:
    await agent(store)
    await agent(store, id="other")
    sent = [await send(store, payload=str(n)) for n in range(3)]
    stays = await send(store, to="other")
    assert [signal.state for signal in sent] == ["pending"] * 3
    plain = await claim(store, await enqueue(store))
    first, second = await job_of(store), await job_of(store)
    assert await known_at_start(store, first) == []
    await claim(store, first)
    assert await known_at_start(store, first) == [0, 1, 2]
    await claim(store, second)
    assert await known_at_start(store, second) == await known_at_start(store, plain.id) == []
    found = (await store.signals.list_agent_signals("ann")).items
    assert [(s.id, s.consumed_by_job_id, s.state) for s in reversed(found)] == [(s.id, first, "consumed") for s in sent]
    assert [s.id for s in await store.signals.list_signals(first)] == [s.id for s in sent]
    assert (await store.signals.list_agent_signals("other", pending=True)).items == (stays,)
    job = await store.jobs.get_job(first)
    assert job.version == len(await store.jobs.list_events(first))


async def test_a_later_claim_of_the_job_takes_none(store: Store) -> None:
    await agent(store)
    await send(store)
    job_id = await job_of(store)
    job = await claim(store, job_id)
    await store.leases.finish(job.lease, outcome(Status.RETRY, delay=0.0))
    await send(store, payload="2")
    again = await claim(store, job_id)
    assert again.lease.attempt == 2
    assert await known_at_start(store, job_id) == [1]
    assert await states(store) == ["consumed", "pending"]


async def test_a_wait_takes_it_whichever_comes_first(store: Store) -> None:
    await agent(store)
    job = await claim(store, await job_of(store))
    await send(store, "other")
    await send(store, payload="1")
    await wait_for(store, job)
    assert await store.agents.deliver("ann") == 1
    await wait_for(store, job, wait_key="stop#2")
    second = await send(store, payload="2")
    assert (second.state, second.consumed_by_job_id) == ("consumed", job.id)
    taken = {s.wait_key: s.payload for s in await store.signals.list_signals(job.id)}
    assert taken == {"stop": 1, "stop#2": 2}
    assert await states(store) == ["pending", "consumed", "consumed"]
    assert await known_at_start(store, job.id) == []
    waits = (await store.jobs.get_job(job.id)).waits
    assert all(wait.answered_at is not None for wait in waits)


async def test_the_oldest_wait_of_several_jobs_takes_it(store: Store) -> None:
    await agent(store)
    first, second = await claim(store, await job_of(store)), await claim(store, await job_of(store))
    await wait_for(store, second)
    await asyncio.sleep(0.05)  # clocks of virtual machines are set back by less
    await wait_for(store, first)
    assert [(await send(store)).consumed_by_job_id for _ in range(3)] == [second.id, first.id, None]


async def test_what_was_there_at_the_start_is_taken_by_a_wait_of_the_job(store: Store) -> None:
    await agent(store)
    await send(store)
    job = await claim(store, await job_of(store))
    await wait_for(store, job)
    assert [s.wait_key for s in await store.signals.list_signals(job.id)] == ["stop"]


async def test_a_message_that_starts_or_wakes_a_job_brings_them_along(store: Store) -> None:
    await agent(store, intake="inbox")
    await send(store, payload="1")
    started_by = (await store.agents.send(message(channel="news"))).job_id
    assert started_by is not None
    assert await known_at_start(store, started_by) == [1]
    job = await waiting(store)
    await send(store, payload="2")
    assert (await store.agents.send(message(channel="news"))).job_id == job.id
    assert [s.payload for s in await store.signals.list_signals(job.id)] == [2]
    assert await known_at_start(store, job.id) == []
    assert await states(store) == ["consumed", "consumed"]


async def test_the_same_id_is_the_same_signal(store: Store) -> None:
    await agent(store)
    await agent(store, id="other")
    first = await send(store, caller_id="a")
    assert await send(store, caller_id="a") == first
    assert (await send(store, to="other", caller_id="a")).id != first.id
    with pytest.raises(SignalConflict, match="agent 'ann'"):
        await send(store, payload="2", caller_id="a")
    job = await claim(store, await job_of(store))
    assert (await send(store, caller_id="a")).consumed_by_job_id == job.id
    assert len(await store.signals.list_signals(job.id)) == 1


async def test_an_expired_one_goes_to_no_job(store: Store) -> None:
    await agent(store)
    await send(store, expires_in=0)
    await send(store, payload="2", expires_in=3600)
    assert await states(store) == ["expired", "pending"]
    assert [s.payload for s in (await store.signals.list_agent_signals("ann", pending=True)).items] == [2]
    job = await claim(store, await job_of(store))
    assert await known_at_start(store, job.id) == [2]


async def test_what_is_refused(store: Store) -> None:
    with pytest.raises(AgentNotFound):
        await send(store)
    await agent(store)
    with pytest.raises(AgentNotFound):
        await store.tenant("acme").signals.send_agent_signal(
            NewAgentSignal(uuid7(), "ann", "stop", "1", None, None, "bob", "test")
        )
    before = await send(store, caller_id="a")
    await store.agents.change_agent("ann", {"paused": True})
    with pytest.raises(AgentPaused):
        await send(store)
    assert await send(store, caller_id="a") == before
    assert await states(store) == ["pending"]


async def test_each_goes_to_one_of_many_jobs_that_are_claimed_at_once(store: Store) -> None:
    await agent(store)
    queue = own_queue()
    jobs = [await job_of(store, queue=queue) for _ in range(8)]
    for n in range(20):
        await send(store, payload=str(n))
    claims = [store.leases.claim(worker_id=f"w{n}", queue=queue, kinds=KINDS, limit=2, ttl=30) for n in range(6)]
    sends = [send(store, payload=str(20 + n)) for n in range(10)]
    await asyncio.gather(*claims, *sends)
    given = [payload for job_id in jobs for payload in await known_at_start(store, job_id)]
    pending = [s.payload for s in (await store.signals.list_agent_signals("ann", pending=True)).items]
    assert sorted(given + pending) == list(range(30))
    assert set(range(20)) <= set(given)


async def take(store: Store, job: ClaimedJob, key: str = "receive_signals") -> list[tuple[str, Any]]:
    taken = await store.signals.take_signals(job.lease, "ann", key, new_event_id())
    assert not taken.more
    return [(signal.key, signal.payload) for signal in taken.signals]


async def test_a_job_takes_what_is_pending_for_it_and_its_agent_in_one_event(store: Store) -> None:
    await agent(store)
    await send(store, "a")
    job, other = await claim(store, await job_of(store)), await claim(store, await job_of(store))
    await store.signals.send_signal(NewSignal(uuid7(), job.id, "mine", '{"n": 1}', None, "bob", "test"))
    await wait_for(store, other, "c")
    for key in ("b", "c"):
        await send(store, key, f'"{key}"')
    await send(store, "late", expires_in=0.0)
    assert await take(store, job) == [("a", 1), ("mine", {"n": 1}), ("b", "b")]
    assert await take(store, job, "receive_signals#2") == await take(store, other) == []
    assert await states(store) == ["consumed"] * 3 + ["expired"]
    assert [signal.pending for signal in await store.signals.list_signals(job.id)] == [False] * 3
    events = await store.jobs.list_events(job.id, types=["signals_taken"])
    assert [event.payload["key"] for event in events if event.payload] == ["receive_signals", "receive_signals#2"]
    assert (await store.jobs.get_job(job.id)).version == (await store.jobs.list_events(job.id))[-1].version
    await wait_for(store, job, "mine")
    assert await store.signals.bound_signal(job.id, "mine") is None
    assert await fsck(store) == []


async def test_a_call_that_is_repeated_takes_nothing_more(store: Store) -> None:
    await agent(store)
    job = await claim(store, await job_of(store))
    await send(store, payload="1")
    event_id = new_event_id()
    first = await store.signals.take_signals(job.lease, "ann", "receive_signals", event_id)
    await send(store, payload="2")
    assert await store.signals.take_signals(job.lease, "ann", "receive_signals", event_id) == first
    assert [signal.payload for signal in first.signals] == [1]
    assert await states(store) == ["consumed", "pending"]


async def test_signals_are_taken_by_the_holder_alone(store: Store) -> None:
    await agent(store)
    job = await claim(store, await job_of(store))
    await send(store)
    await store.leases.finish(job.lease, outcome(Status.RETRY, delay=0.0))
    with pytest.raises(LeaseLost):
        await take(store, job)
    assert await states(store) == ["pending"]


async def test_many_signals_are_taken_in_several_events(store: Store) -> None:
    await agent(store)
    job = await claim(store, await job_of(store))
    for n in range(MOST_BOUND + 3):
        await send(store, payload=str(n))
    first = await store.signals.take_signals(job.lease, "ann", "receive_signals", new_event_id())
    assert (len(first.signals), first.more) == (MOST_BOUND, True)
    second = await store.signals.take_signals(job.lease, "ann", "receive_signals", new_event_id())
    assert ([signal.payload for signal in second.signals], second.more) == ([100, 101, 102], False)
    large = json.dumps("x" * 700_000)
    for _ in range(2):
        await send(store, payload=large)
    assert [
        len((await store.signals.take_signals(job.lease, "ann", "k", new_event_id())).signals) for _ in range(2)
    ] == [1, 1]


async def test_an_agent_that_is_not_there_has_no_signals(store: Store) -> None:
    job = await claim(store, await enqueue(store, agent_id="ann"))
    assert await take(store, job) == []
