"""Messages and signals to agents that no job will get any more: which a prune deletes, and which stay."""

import pytest

from perdure.model.agents import NewAgent
from perdure.model.effects import send_message
from perdure.model.ids import uuid7
from perdure.model.messages import NewMessage, reply_channel_of
from perdure.model.states import Status
from perdure.store.postgres.retention import retention as postgres_retention
from perdure.store.protocol import Store
from perdure.store.sqlite.retention import retention as sqlite_retention
from tests.conformance.healthy_jobs import fsck
from tests.conformance.support import HOUR, claim, enqueue, outcome, own_queue, passed
from tests.conformance.test_agent_signals import job_of, send, states

S = Status


async def moment(store: Store) -> None:
    """What was written before is then a few milliseconds old: ids and database time say so."""
    now = await store.now()
    while (await store.now() - now).total_seconds() < 0.005:
        pass


async def agent(store: Store, **changes: object) -> None:
    await store.agents.create_agent(NewAgent("ann", "echo", queue=own_queue(), **changes))  # type: ignore[arg-type]


async def inbox(store: Store) -> dict[object, str]:
    return {m.id: m.state for m in (await store.agents.list_messages("ann", "inbox")).items}


async def test_messages_that_expired_are_forgotten_and_those_that_a_job_got_or_may_get_stay(store: Store) -> None:
    await agent(store, intake="inbox")
    got = NewMessage(uuid7(), "ann", '"first"')
    expires = NewMessage(uuid7(), "ann", '"expires"', expires_in=0.001)
    pending = [NewMessage(uuid7(), "ann", '"next"'), NewMessage(uuid7(), "ann", '"later"', delay=HOUR)]
    for new in (got, expires, *pending):
        await store.agents.send(new)
    await moment(store)
    await store.agents.deliver("ann")
    assert (await inbox(store))[expires.id] == "expired"
    assert await store.retention.forget_messages("message", HOUR) == (0, None)
    assert await store.tenant("other").retention.forget_messages("message", 0) == (0, None)
    assert await store.retention.forget_messages("message", 0) == (1, None)
    assert await inbox(store) == {got.id: "consumed"} | {new.id: "pending" for new in pending}
    assert await fsck(store) == []


async def test_a_question_that_was_refused_stays_until_its_sender_ends(store: Store) -> None:
    await agent(store, intake="inbox")
    lease = (await claim(store, await enqueue(store))).lease
    question = uuid7()
    ask = NewMessage(question, "ann", '"?"', expires_in=0.001, reply_channel=reply_channel_of(question))
    await store.leases.record(lease, [], effects=[send_message(ask)])
    await moment(store)
    await store.agents.deliver("ann")
    assert await inbox(store) == {question: "expired"}
    await moment(store)
    assert await store.retention.forget_messages("message", 0) == (0, None)
    await store.leases.finish(lease, outcome(S.COMPLETED))
    assert await store.retention.forget_messages("message", 0) == (1, None)


async def test_a_reply_to_a_sender_that_is_no_agent_is_forgotten_when_the_job_that_sent_it_has_ended(
    store: Store,
) -> None:
    await agent(store)
    lease = (await claim(store, await job_of(store))).lease
    replies = [NewMessage(uuid7(), None, '"yes"', reply_to=uuid7()) for _ in range(2)]
    waited = uuid7()
    replies.append(NewMessage(uuid7(), None, '"asked"', reply_channel_of(waited), reply_to=waited))
    await store.leases.record(lease, [], effects=[send_message(new) for new in replies])
    await moment(store)
    assert await store.retention.forget_messages("message", 0) == (0, None)
    await store.leases.finish(lease, outcome(S.COMPLETED))
    assert await store.retention.forget_messages("message", HOUR) == (0, None)
    assert await store.retention.forget_messages("message", 0) == (2, None)
    left = (await store.agents.list_messages("ann", "outbox")).items
    assert [m.id for m in left] == [replies[-1].id], "that one is looked for by a wait, or is refused as late"


async def test_signals_that_expired_or_whose_job_has_ended_are_forgotten(store: Store) -> None:
    await agent(store)
    await send(store, "got")
    lease = (await claim(store, await job_of(store))).lease
    await send(store, "expires", expires_in=0.001)
    await send(store, "pending", expires_in=HOUR)
    await send(store, "pending too")
    await moment(store)
    assert await store.retention.forget_messages("signal", HOUR) == (0, None)
    assert await store.tenant("other").retention.forget_messages("signal", 0) == (0, None)
    assert await states(store) == ["consumed", "expired", "pending", "pending"]
    assert await store.retention.forget_messages("signal", 0) == (1, None)
    assert await states(store) == ["consumed", "pending", "pending"]
    await store.leases.finish(lease, outcome(S.COMPLETED))
    assert await store.retention.forget_messages("signal", 0) == (1, None)
    assert await states(store) == ["pending", "pending"]
    assert [s.key for s in await store.signals.list_signals(lease.job_id)] == ["got"], "the job keeps what it got"
    await passed(store, (await store.jobs.get_job(lease.job_id)).finished_at)
    assert await store.retention.prune([lease.job_id]) == 1
    assert await fsck(store) == []


async def test_the_signals_of_a_job_that_was_deleted_are_forgotten(store: Store) -> None:
    await agent(store)
    await send(store)
    lease = (await claim(store, await job_of(store))).lease
    await store.leases.finish(lease, outcome(S.COMPLETED))
    assert await store.retention.prune([lease.job_id]) == 1
    await moment(store)
    assert await store.retention.forget_messages("signal", 0) == (1, None)


async def test_each_look_is_bounded_whatever_matches(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (postgres_retention, sqlite_retention):
        monkeypatch.setattr(module, "MOST_FORGOTTEN", 2)
    await agent(file_store)
    for n in range(5):
        await send(file_store, str(n), expires_in=HOUR if n in (0, 1) else 0.001)
    await moment(file_store)
    deleted, after = await file_store.retention.forget_messages("signal", 0)
    assert deleted == 0
    counts = []
    while after is not None:
        deleted, after = await file_store.retention.forget_messages("signal", 0, after=after)
        counts.append(deleted)
    assert counts == [2, 1]
    assert await states(file_store) == ["pending", "pending"]
