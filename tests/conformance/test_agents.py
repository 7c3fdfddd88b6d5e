"""Agents and their messages: each is bound to exactly one job, in the order of its due time, as that job starts."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from perdure.model.agents import AgentInstance, AgentStatus, NewAgent, NewState, key_of_agent
from perdure.model.effects import send_message
from perdure.model.errors import AgentInUse, AgentNotFound, AgentPaused, IdempotencyConflict, SessionChanged
from perdure.model.events import NewEvent
from perdure.model.ids import uuid7
from perdure.model.jobs import JobFilter, Lease, Outcome
from perdure.model.messages import Message, NewMessage, messages_of_payload
from perdure.model.signals import NewAgentSignal
from perdure.model.states import Status
from perdure.store.protocol import Store
from tests.conformance.healthy_jobs import fsck
from tests.conformance.support import KINDS, claim, enqueue, outcome, own_queue, run_to, started

HOUR = 3600.0


async def agent(store: Store, id: str = "ann", **changes: Any) -> NewAgent:
    """A new agent whose jobs are of kind `echo`, in a queue of its own."""
    new = NewAgent(id, "echo", queue=own_queue())._replace(**changes)
    assert await store.agents.create_agent(new)
    return new


def message(to: str = "ann", payload: str = '"hello"', **changes: Any) -> NewMessage:
    return NewMessage(uuid7(), to, payload)._replace(**changes)


async def inbox(store: Store, id: str = "ann") -> list[Message]:
    """Its messages, oldest first."""
    return [*reversed((await store.agents.list_messages(id, "inbox", limit=1000)).items)]


async def texts_of_jobs(store: Store) -> list[list[str]]:
    """What the messages of each job say, oldest job first."""
    jobs = (await store.jobs.list_jobs(JobFilter(), limit=1000)).items
    return [[str(m.payload) for m in messages_of_payload(job.payload)] for job in reversed(jobs)]


async def known(store: Store, id: str = "ann") -> AgentInstance:
    found = await store.agents.get_agent(id)
    assert found is not None
    return found


# -- instances ------------------------------------------------------------------------------------------------------------


async def test_an_agent_is_created_once(store: Store) -> None:
    new = await agent(store, meta='{"persona": "strict"}', name="Ann", default_session_id="main", max_retries=7)
    assert not await store.agents.create_agent(new._replace(name="other"))
    found = await known(store)
    assert (found.id, found.kind, found.name, found.meta) == ("ann", "echo", "Ann", {"persona": "strict"})
    assert (found.default_session_id, found.max_retries, found.paused_at) == ("main", 7, None)
    assert found.status is AgentStatus.IDLE
    assert await store.agents.get_agent("bob") is None


async def test_the_same_id_in_two_tenants_is_two_agents(file_store: Store) -> None:
    one, other = file_store.tenant("one"), file_store.tenant("other")
    for store in (one, other):
        await agent(store, name=store.tenant_id)
    await one.agents.send(message())
    assert (await known(one)).name == "one"
    assert (await known(other)).name == "other"
    assert [m.state for m in await inbox(one)] == ["consumed"]
    assert await inbox(other) == []
    assert (await other.jobs.list_jobs(JobFilter())).items == ()
    with pytest.raises(AgentNotFound, match="no agent has the id 'ann'"):
        await file_store.tenant("third").agents.send(message())


async def test_an_agent_is_changed(store: Store) -> None:
    await agent(store)
    changed = await store.agents.change_agent("ann", {"name": "Ann", "batch": 5, "intake": "inbox"})
    assert (changed.name, changed.batch, changed.intake) == ("Ann", 5, "inbox")
    assert changed == await known(store)
    paused = await store.agents.change_agent("ann", {"paused": True})
    again = await store.agents.change_agent("ann", {"paused": True, "name": "A"})
    assert paused.paused_at is not None
    assert again.paused_at == paused.paused_at
    assert (await store.agents.change_agent("ann", {"paused": False})).paused_at is None
    with pytest.raises(AgentNotFound):
        await store.agents.change_agent("bob", {"name": "Bob"})


async def test_agents_are_listed_by_id_page_by_page(store: Store) -> None:
    for id in ("dan", "ann", "cal", "bob"):
        await agent(store, id)
    first = await store.agents.list_agents(limit=3)
    assert [a.id for a in first.items] == ["ann", "bob", "cal"]
    rest = await store.agents.list_agents(limit=3, cursor=first.next_cursor)
    assert ([a.id for a in rest.items], rest.next_cursor) == (["dan"], None)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.PENDING, "idle"),
        (Status.RUNNING, "running"),
        (Status.WAITING, "waiting"),
        (Status.PARKED, "parked"),
        (Status.WAITING_FOR_APPROVAL, "parked"),
        (Status.RETRY, "idle"),
        (Status.COMPLETED, "idle"),
        (Status.FAILED, "failed"),
        (Status.DEADLETTER, "failed"),
        (Status.CANCELLED, "idle"),
    ],
)
async def test_the_status_of_an_agent_is_that_of_its_jobs(store: Store, status: Status, expected: str) -> None:
    await agent(store)
    await run_to(store, status, agent_id="ann")
    assert (await known(store)).status == expected
    assert [a.id for a in (await store.agents.list_agents(status=AgentStatus(expected))).items] == ["ann"]
    for other in set(AgentStatus) - {AgentStatus(expected)}:
        assert (await store.agents.list_agents(status=other)).items == ()


async def test_the_most_active_job_counts(store: Store) -> None:
    await agent(store)
    for status, expected in (
        (Status.FAILED, "failed"),
        (Status.CANCELLED, "failed"),
        (Status.COMPLETED, "idle"),
        (Status.PARKED, "parked"),
        (Status.WAITING, "waiting"),
        (Status.RUNNING, "running"),
    ):
        await run_to(store, status, agent_id="ann")
        assert (await known(store)).status == expected, status


async def test_a_delayed_message_parks_an_agent(store: Store) -> None:
    await agent(store)
    await store.agents.send(message(delay=HOUR))
    assert (await known(store)).status is AgentStatus.PARKED


# -- a job for each message -----------------------------------------------------------------------------------------------


async def test_a_message_starts_a_job(store: Store) -> None:
    new = await agent(store, default_session_id="main", max_retries=9)
    sent = await store.agents.send(message(channel="news", causation_id="order:1"), from_agent_id=None)
    assert sent.created
    assert sent.job_id is not None
    job = await store.jobs.get_job(sent.job_id)
    assert (job.kind, job.queue, job.goal, job.max_retries) == ("echo", new.queue, "hello", 9)
    assert (job.agent_id, job.session_id, job.concurrency_key) == ("ann", "main", key_of_agent("ann"))
    [inside] = messages_of_payload(job.payload)
    [stored] = await inbox(store)
    assert (inside.id, inside.payload, inside.channel, inside.causation_id) == (sent.id, "hello", "news", "order:1")
    assert (stored.id, stored.state, stored.consumed_by_job_id) == (sent.id, "consumed", job.id)
    assert stored.consumed_at is not None
    assert job.note == {"actor": "message", "via": "message", "message": str(sent.id)}


async def test_the_goal_is_the_text_cut_at_2000(store: Store) -> None:
    await agent(store)
    text = "x" * 3000
    sent = await store.agents.send(message(payload=f'"{text}"'))
    other = await store.agents.send(message(payload='{"n": 1}'))
    assert sent.job_id is not None
    assert other.job_id is not None
    assert (await store.jobs.get_job(sent.job_id)).goal == text[:2000]
    assert (await store.jobs.get_job(other.job_id)).goal == '{"n": 1}'


async def test_messages_become_jobs_in_the_order_they_are_due(store: Store) -> None:
    new = await agent(store)
    await store.agents.change_agent("ann", {"paused": True})
    await store.agents.change_agent("ann", {"paused": False})
    for text, delay in (("late", 0.2), ("early", 0.1)):
        await store.agents.send(message(payload=f'"{text}"', delay=delay))
    assert await store.agents.deliver("ann") == 0
    async with asyncio.timeout(10):
        while len(await texts_of_jobs(store)) < 2:
            await store.agents.deliver("ann")
    taken = [await claim_next(store, new.queue) for _ in range(2)]
    assert [m.payload for payload in taken for m in messages_of_payload(payload)] == ["early", "late"]


async def claim_next(store: Store, queue: str) -> Any:
    """Run the first job of a queue, and return its payload."""
    while True:
        jobs = await store.leases.claim(worker_id="w", queue=queue, kinds=KINDS, limit=1, ttl=30)
        if jobs:
            break
        await store.leases.release_held()
    payload = (await store.jobs.get_job(jobs[0].id)).payload
    await store.leases.finish(jobs[0].lease, outcome(Status.COMPLETED))
    return payload


async def test_jobs_of_an_agent_run_one_after_another_in_order(store: Store) -> None:
    new = await agent(store)
    for n in range(3):
        await store.agents.send(message(payload=str(n)))
    claimed = await store.leases.claim(worker_id="w", queue=new.queue, kinds=KINDS, limit=10, ttl=30)
    assert len(claimed) == 1
    assert await store.leases.claim(worker_id="w", queue=new.queue, kinds=KINDS, limit=10, ttl=30) == []
    await store.leases.finish(claimed[0].lease, outcome(Status.COMPLETED))
    assert [messages_of_payload(await claim_next(store, new.queue))[0].payload for _ in range(2)] == [1, 2]


async def test_parallel_agents_have_no_order(store: Store) -> None:
    new = await agent(store, on_busy="parallel")
    for n in range(3):
        await store.agents.send(message(payload=str(n)))
    assert len(await store.leases.claim(worker_id="w", queue=new.queue, kinds=KINDS, limit=10, ttl=30)) == 3


async def test_two_deliveries_at_once_bind_a_message_once(file_store: Store) -> None:
    await agent(file_store, intake="inbox")
    lease = await started(file_store, agent_id="ann")
    for n in range(5):
        await file_store.agents.send(message(payload=str(n)))
    await file_store.leases.finish(lease, outcome(Status.COMPLETED))
    await file_store.agents.change_agent("ann", {"intake": "each"})
    bound = await asyncio.gather(*(file_store.agents.deliver("ann") for _ in range(8)))
    assert sum(bound) == 5
    assert sorted(text for texts in await texts_of_jobs(file_store) for text in texts) == [str(n) for n in range(5)]


# -- the inbox ------------------------------------------------------------------------------------------------------------


async def test_an_inbox_waits_until_the_agent_is_free(store: Store) -> None:
    await agent(store, intake="inbox", batch=2)
    first = await store.agents.send(message(payload="0"))
    for n in (1, 2, 3):
        assert (await store.agents.send(message(payload=str(n)))).job_id is None
    assert await store.agents.deliver("ann") == 0
    assert await store.agents.due_agents() == []
    assert first.job_id is not None
    lease = (await claim(store, first.job_id)).lease
    await store.leases.finish(lease, outcome(Status.COMPLETED))
    assert await store.agents.due_agents() == ["ann"]
    assert await store.agents.next_delivery() == 0
    assert await store.agents.deliver("ann") == 2
    assert await store.agents.due_agents() == []
    assert await texts_of_jobs(store) == [["0"], ["1", "2"]]
    job = (await store.jobs.list_jobs(JobFilter())).items[0]
    assert job.goal == "process inbox"
    assert [m.state for m in await inbox(store)] == ["consumed"] * 3 + ["pending"]


async def test_a_suspended_job_does_not_keep_an_inbox(store: Store) -> None:
    await agent(store, intake="inbox")
    job_id = await run_to(store, Status.PARKED, agent_id="ann")
    assert await store.agents.due_agents() == ["ann"]
    sent = await store.agents.send(message())
    assert sent.job_id not in (None, job_id)


async def test_a_batch_is_of_one_session(store: Store) -> None:
    await agent(store, intake="inbox", batch=10)
    lease = await started(store, agent_id="ann")
    for n, session in enumerate(["a", "a", "b", "a"]):
        await store.agents.send(message(payload=str(n), session_id=session))
    await store.leases.finish(lease, outcome(Status.COMPLETED))
    assert await store.agents.deliver("ann") == 2
    jobs = (await store.jobs.list_jobs(JobFilter())).items
    assert [m.payload for m in messages_of_payload(jobs[0].payload)] == [0, 1]
    assert jobs[0].session_id == "a"


# -- what is not delivered ------------------------------------------------------------------------------------------------


async def test_an_expired_message_is_marked(store: Store) -> None:
    await agent(store, intake="inbox")
    lease = await started(store, agent_id="ann")
    await store.agents.send(message(expires_in=0))
    await store.agents.send(message(expires_in=HOUR, payload="2"))
    await store.leases.finish(lease, outcome(Status.COMPLETED))
    assert await store.agents.deliver("ann") == 1
    assert [m.state for m in await inbox(store)] == ["expired", "consumed"]


async def test_a_paused_agent_accepts_and_gets_nothing(store: Store) -> None:
    await agent(store)
    lease = await started(store, agent_id="ann")
    await store.agents.change_agent("ann", {"paused": True})
    with pytest.raises(AgentPaused, match="was paused at"):
        await store.agents.send(message())
    await store.leases.record(lease, [NewEvent("note")], effects=[send_message(message())])
    assert await store.agents.deliver("ann") == 0
    assert [m.state for m in await inbox(store)] == ["pending"]
    await store.agents.change_agent("ann", {"paused": False})
    assert await store.agents.due_agents() == ["ann"]
    assert await store.agents.deliver("ann") == 1


async def test_an_idempotency_key_is_per_agent(store: Store) -> None:
    await agent(store)
    await agent(store, "bob")
    first = await store.agents.send(message(idempotency_key="k"))
    again = await store.agents.send(message(idempotency_key="k", payload=' "hello"'))
    other = await store.agents.send(message("bob", idempotency_key="k"))
    assert (again.id, again.created, again.job_id) == (first.id, False, first.job_id)
    assert other.created
    with pytest.raises(IdempotencyConflict, match="another payload"):
        await store.agents.send(message(idempotency_key="k", payload='"other"'))
    assert len(await inbox(store)) == 1


async def test_start_starts_a_job_whatever_the_intake(store: Store) -> None:
    await agent(store, intake="inbox")
    await started(store, agent_id="ann")
    sent = await store.agents.send(message(), start=True)
    assert sent.job_id is not None
    waiting = await store.agents.send(message(idempotency_key="k"))
    assert waiting.job_id is None
    assert (await store.agents.send(message(idempotency_key="k"), start=True)).job_id is not None


# -- what a job sends -----------------------------------------------------------------------------------------------------


async def sender(store: Store) -> Lease:
    """A running job of agent `bob`."""
    await agent(store, "bob")
    return await started(store, agent_id="bob")


async def test_what_a_job_sends_commits_with_its_event(store: Store) -> None:
    await agent(store)
    lease = await sender(store)
    new = message(channel="news")
    await store.leases.record(lease, [NewEvent("note")], effects=[send_message(new)])
    [stored] = (await store.agents.list_messages("bob", "outbox")).items
    assert (stored.id, stored.from_agent_id, stored.job_id, stored.state) == (new.id, "bob", lease.job_id, "pending")
    assert await store.agents.due_agents() == ["ann"]
    assert await store.agents.deliver("ann") == 1
    assert await store.agents.due_agents() == []
    lost = lease._replace(worker_id="other")
    with pytest.raises(Exception, match="no longer holds"):
        await store.leases.record(lost, [NewEvent("note")], effects=[send_message(message())])
    assert len(await inbox(store)) == 1


async def test_a_reply_commits_with_the_end(store: Store) -> None:
    lease = await sender(store)
    reply = message(payload='"yes"')._replace(to_agent_id=None, reply_to=uuid7())
    await store.leases.finish(lease, Outcome(Status.COMPLETED, result="1"), effects=[send_message(reply)])
    [stored] = (await store.agents.list_messages("bob", "outbox")).items
    assert (stored.payload, stored.to_agent_id, stored.reply_to, stored.state) == ("yes", None, reply.reply_to, "sent")
    assert await store.agents.due_agents() == ["bob"]


async def test_whose_job_it_is(store: Store) -> None:
    await agent(store)
    mine = await enqueue(store, agent_id="ann", session_id="s")
    others = await enqueue(store, agent_id="nobody")
    plain = await enqueue(store)
    found = await store.agents.agent_of(mine)
    assert found is not None
    assert found.agent is not None
    assert (found.agent_id, found.session_id, found.agent.kind) == ("ann", "s", "echo")
    assert await store.agents.agent_of(others) == ("nobody", None, None, False)
    assert await store.agents.agent_of(plain) is None
    assert await store.agents.agent_of(uuid7()) is None


async def test_boxes_are_read_page_by_page_and_stay(store: Store) -> None:
    await agent(store, intake="inbox")
    await started(store, agent_id="ann")
    ids: list[UUID] = [(await store.agents.send(message(payload=str(n)), from_agent_id="ann")).id for n in range(3)]
    for box in ("inbox", "outbox"):
        first = await store.agents.list_messages("ann", box, limit=2)
        rest = await store.agents.list_messages("ann", box, limit=2, cursor=first.next_cursor)
        assert [m.id for m in (*first.items, *rest.items)] == ids[::-1]
        assert rest.next_cursor is None
    assert len((await store.agents.list_messages("ann", "inbox", pending=True)).items) == 3


async def test_an_agent_is_deleted_with_its_states_and_its_jobs_stay(store: Store) -> None:
    with pytest.raises(AgentNotFound):
        await store.agents.delete_agent("ann")
    await agent(store)
    lease = await started(store, agent_id="ann")
    await store.agents.save_state(lease, NewState("ann", "", "1", 0, "save"))
    with pytest.raises(AgentInUse, match=": 1 job\n"):
        await store.agents.delete_agent("ann")
    await store.leases.finish(lease, outcome(Status.COMPLETED))
    with pytest.raises(AgentNotFound):
        await store.tenant("other").agents.delete_agent("ann")
    await store.agents.delete_agent("ann")
    assert await store.agents.get_agent("ann") is None
    assert (await store.jobs.get_job(lease.job_id)).agent_id == "ann"
    with pytest.raises(AgentNotFound):
        await store.agents.send(message())
    await agent(store)
    assert await store.agents.read_state("ann", "") is None
    assert await fsck(store) == []


async def test_what_is_pending_for_a_deleted_agent_expires(store: Store) -> None:
    await agent(store, intake="inbox")
    lease = await started(store, agent_id="ann")
    await store.agents.send(message(delay=HOUR))
    await store.signals.send_agent_signal(NewAgentSignal(uuid7(), "ann", "form", "1", None, None, "bob", "test"))
    with pytest.raises(AgentInUse, match=": 1 job, 1 message, 1 signal\n"):
        await store.agents.delete_agent("ann")
    await store.agents.delete_agent("ann", force=True)
    assert [m.state for m in await inbox(store)] == ["expired"]
    [signal] = (await store.signals.list_agent_signals("ann")).items
    assert (signal.consumed_by_job_id, signal.expired) == (None, True)
    assert await store.agents.due_agents() == []
    await store.leases.finish(lease, outcome(Status.COMPLETED))
    assert (await store.agents.due_agents(), await store.agents.deliver("ann")) == ([], 0)
    assert await fsck(store) == []


async def test_the_state_of_a_session_is_set_by_no_job_at_its_version(store: Store) -> None:
    with pytest.raises(AgentNotFound):
        await store.agents.set_state(NewState("ann", "x", "[1]", 0, "client:1"))
    await agent(store)
    first = NewState("ann", "x", "[1]", 0, "client:1")
    saved = await store.agents.set_state(first)
    assert (saved.state, saved.version, saved.job_id, saved.session_id) == ([1], 1, None, "x")
    assert await store.agents.set_state(first) == saved
    assert await store.agents.read_state("ann", "x") == saved
    for expected, key in ((0, "client:2"), (2, "client:3")):
        text = f"{expected} was expected\nread it again: perdure agents session ann --session x"
        with pytest.raises(SessionChanged, match=text):
            await store.agents.set_state(NewState("ann", "x", "[2]", expected, key))
    second = await store.agents.set_state(NewState("ann", "x", "[3]", 1, "client:4"))
    third = await store.agents.set_state(NewState("ann", "x", "[4]", 0, "client:5"), any_version=True)
    assert (second.version, third.version, third.state) == (2, 3, [4])
    other = await store.agents.set_state(NewState("ann", "", "null", 0, "client:6"))
    assert (await store.agents.list_states("ann")).items == (other, third)
    page = await store.agents.list_states("ann", limit=1)
    assert (await store.agents.list_states("ann", limit=1, cursor=page.next_cursor)).items == (third,)
    assert (await store.agents.list_states("bob")).items == ()
    assert await fsck(store) == []


async def test_of_several_that_set_a_session_at_one_version_one_does(store: Store) -> None:
    await agent(store)
    states = [NewState("ann", "x", str(n), 0, f"client:{n}") for n in range(8)]
    done = await asyncio.gather(*(store.agents.set_state(state) for state in states), return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["SessionChanged"] * 7 + ["SessionState"]
