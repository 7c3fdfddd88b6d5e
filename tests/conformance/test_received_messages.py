"""Waits for messages: a delivery gives each message to one wait, and a wait that ends gives back what it had."""

import asyncio
from uuid import UUID

import pytest

from perdure.model.effects import send_message
from perdure.model.events import NewEvent
from perdure.model.ids import uuid7
from perdure.model.jobs import ClaimedJob, Wait
from perdure.model.messages import REPLY_PREFIX, NewMessage, wanted_text
from perdure.model.states import Status
from perdure.model.waits import MESSAGE
from perdure.runtime.context.waits import started
from perdure.store.protocol import Store
from tests.conformance.support import claim, enqueue, outcome
from tests.conformance.test_agents import agent, inbox, message


async def waiting(store: Store, key: str = "news", *, channel: str | None = "news", limit: int = 1) -> ClaimedJob:
    """A running job of ann, with a wait for messages."""
    job = await claim(store, await enqueue(store, agent_id="ann"))
    await open_wait(store, job, key, channel=channel, limit=limit)
    return job


async def open_wait(
    store: Store, job: ClaimedJob, key: str = "news", *, channel: str | None = "news", limit: int = 1
) -> Wait:
    wait = Wait(key, MESSAGE.name, None, wanted_text(channel, limit))
    await store.leases.record(job.lease, [started(wait)], effects=MESSAGE.opens(wait))
    return wait


async def close_wait(store: Store, job: ClaimedJob, wait: Wait) -> None:
    """End a wait without an answer."""
    done = NewEvent("wait_completed", f'{{"key": "{wait.key}", "kind": "message"}}')
    await store.leases.record(job.lease, [done], effects=MESSAGE.closes(wait, answered=False))


async def taken(store: Store, job_id: UUID, key: str = "news") -> list[str]:
    return [m.payload for m in await store.agents.bound_messages(job_id, key)]


async def test_a_message_goes_to_the_oldest_wait_of_its_channel(store: Store) -> None:
    await agent(store)
    first, second = await waiting(store), await waiting(store)
    other = await waiting(store, channel="sport")
    for text in ("1", "2"):
        assert (await store.agents.send(message(payload=f'"{text}"', channel="news"))).job_id in (first.id, second.id)
    assert [await taken(store, job.id) for job in (first, second, other)] == [["1"], ["2"], []]
    waits = (await store.jobs.get_job(first.id)).waits
    assert [wait.answered_at is not None for wait in waits] == [True]
    third = await store.agents.send(message(channel="news"))
    assert third.job_id not in (None, first.id, second.id, other.id)


async def test_what_is_there_is_given_when_a_wait_opens(store: Store) -> None:
    await agent(store, intake="inbox")
    job = await claim(store, await enqueue(store, agent_id="ann"))
    for text in "123":
        await store.agents.send(message(payload=f'"{text}"', channel="news"))
    await open_wait(store, job, limit=2)
    assert "ann" in await store.agents.due_agents()
    assert await store.agents.deliver("ann") == 2
    assert await taken(store, job.id) == ["1", "2"]
    events = await store.jobs.list_events(job.id)
    assert [e.payload["key"] for e in events if e.type == "agent_message"] == ["news", "news"]
    assert await store.agents.deliver("ann") == 0


async def test_a_parked_job_is_woken(store: Store) -> None:
    await agent(store)
    job = await waiting(store)
    await store.leases.finish(job.lease, outcome(Status.PARKED))
    sent = await store.agents.send(message(channel="news"))
    assert sent.job_id == job.id
    again = await claim(store, job.id)
    assert again.lease.attempt == 2
    assert await taken(store, job.id) == ["hello"]


async def test_a_wait_that_ends_without_an_answer_gives_back_what_it_was_given(store: Store) -> None:
    await agent(store, intake="inbox")
    job = await claim(store, await enqueue(store, agent_id="ann"))
    wait = await open_wait(store, job)
    await store.agents.send(message(channel="news"))
    assert await taken(store, job.id) == ["hello"]
    await close_wait(store, job, wait)
    [given_back] = await inbox(store)
    assert (given_back.state, given_back.consumed_by_job_id) == ("pending", None)
    assert "ann" in await store.agents.due_agents()
    await open_wait(store, job, "second")
    assert await store.agents.deliver("ann") == 1
    assert await taken(store, job.id, "second") == ["hello"]


async def test_a_reply_goes_to_the_wait_of_its_question(store: Store) -> None:
    await agent(store, "bob")
    asker, bystander = await waiting(store, channel=None), await waiting(store, channel=None)
    asked = NewMessage(uuid7(), "bob", '"well?"')
    channel = f"{REPLY_PREFIX}{asked.id}"
    wait = Wait("ask:bob", MESSAGE.name, None, wanted_text(channel, 1))
    sent = NewEvent("message_sent", f'{{"key": "ask:bob", "message": "{asked.id}", "to": "bob", "channel": "default"}}')
    await store.leases.record(asker.lease, [sent, started(wait)], effects=(send_message(asked), *MESSAGE.opens(wait)))
    assert await store.agents.deliver(channel) == 0
    for text in ("yes", "no"):
        reply = NewMessage(uuid7(), "ann", f'"{text}"', channel, reply_to=asked.id)
        answered = NewEvent(
            "message_sent", f'{{"key": "{text}", "message": "{reply.id}", "to": "ann", "channel": "x"}}'
        )
        await store.leases.record(bystander.lease, [answered], effects=(send_message(reply),))
    assert channel in await store.agents.due_agents()
    assert await store.agents.deliver(channel) == 1
    assert await taken(store, asker.id, "ask:bob") == ["yes"]
    assert await store.agents.deliver(channel) == 0
    await store.agents.deliver("ann")
    assert [m.state for m in await inbox(store)] == ["consumed", "late"]
    assert await taken(store, bystander.id) == []


@pytest.mark.parametrize("n", [20])
async def test_many_senders_at_once(file_store: Store, n: int) -> None:
    store = file_store
    await agent(store, intake="inbox")
    jobs = [await waiting(store, limit=3) for _ in range(3)]
    await asyncio.gather(
        *(store.agents.send(message(payload=f'"{i}"', channel="news")) for i in range(n)),
        *(store.agents.deliver("ann") for _ in range(5)),
    )
    bound = [await taken(store, job.id) for job in jobs]
    assert all(bound)
    texts = [text for found in bound for text in found]
    assert len(texts) == len(set(texts))
    pending = [m.payload for m in await inbox(store) if m.state == "pending"]
    assert sorted(texts + pending) == sorted(str(i) for i in range(n))
