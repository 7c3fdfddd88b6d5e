"""Finding approvals; and that the token is a secret which no table, event or list keeps."""

from typing import Any
from uuid import uuid4

import pytest

from perdure.model.approvals import Approval, ApprovalStatus
from perdure.model.errors import AlreadyDecided, AmbiguousId, ApprovalExpired, ApprovalNotFound, PerdureError
from perdure.model.ids import hash_token, new_token
from perdure.model.jobs import Lease, Outcome
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell, dump
from tests.conformance.support import (
    S,
    approve,
    asked,
    by_token,
    checked_log,
    claim,
    deny,
    enqueue,
    event,
    new_approval,
    passed,
    started,
)


async def test_an_unknown_approval(store: Store) -> None:
    for call in (
        store.approvals.get_approval(uuid4()),
        store.approvals.decide(approve(uuid4())),
        store.approvals.find_approval(str(uuid4())),
    ):
        with pytest.raises(ApprovalNotFound):
            await call


async def test_an_approval_is_found_by_its_end_or_by_its_job(store: Store) -> None:
    approval = await asked(store)
    for text in (str(approval.id), approval.id.hex[-8:], f"…{approval.id.hex[-6:]}".upper()):
        assert await store.approvals.find_approval(text) == approval.id
    assert await store.approvals.find_approval(approval.job_id.hex[-8:]) == approval.id
    assert await store.approvals.find_approval(str(approval.job_id)) == approval.id
    await store.approvals.request_approval(Lease(approval.job_id, 1, "worker-1"), new_approval("second"))
    with pytest.raises(AmbiguousId):
        await store.approvals.find_approval(approval.job_id.hex[-8:])
    await store.approvals.decide(approve(approval))
    assert await store.approvals.find_approval(approval.job_id.hex[-8:]) != approval.id, "the one that is PENDING"
    with pytest.raises(AmbiguousId):
        await store.approvals.find_approval(approval.id.hex[-5:])


async def test_a_job_without_open_approvals_means_its_latest(store: Store) -> None:
    first = await asked(store)
    second = await store.approvals.request_approval(Lease(first.job_id, 1, "worker-1"), new_approval("second"))
    for approval in (second, first):
        await store.approvals.decide(approve(approval))
    for text in (str(first.job_id), first.job_id.hex[-8:]):
        assert await store.approvals.find_approval(text) == second.id, "the latest asked, not the latest decided"
    with pytest.raises(AlreadyDecided):
        await store.approvals.decide(deny(await store.approvals.find_approval(str(first.job_id))))
    expired = await asked(store, expires_in=0.001)
    await passed(store, expired.expires_at)
    await store.leases.expire()
    with pytest.raises(ApprovalExpired):
        await store.approvals.decide(approve(await store.approvals.find_approval(str(expired.job_id))))


async def test_a_job_that_never_asked_is_not_an_unknown_id(store: Store) -> None:
    bare = await enqueue(store)
    for text in (str(bare), bare.hex[-8:]):
        with pytest.raises(ApprovalNotFound, match=f"job …{bare.hex[-8:]} has requested no approval"):
            await store.approvals.find_approval(text)


async def test_a_job_with_several_open_approvals_names_them(store: Store) -> None:
    first = await asked(store, title="Publish\nthis?")
    lease = Lease(first.job_id, 1, "worker-1")
    others = [
        await store.approvals.request_approval(lease, new_approval(f"more {n}", title="x" * 60)) for n in range(2)
    ]
    for text in (str(first.job_id), first.job_id.hex[-8:]):
        with pytest.raises(AmbiguousId) as refused:
            await store.approvals.find_approval(text)
        shown = [f"…{first.short_id} 'Publish this?'", *(f"…{other.short_id} '{'x' * 39}…'" for other in others)]
        assert refused.value.message == f"job …{first.job_id.hex[-8:]} has several open approvals: {', '.join(shown)}"
        assert refused.value.hint is not None
        assert "name one of them" in refused.value.hint
    await store.approvals.request_approval(lease, new_approval("one too many"))
    with pytest.raises(AmbiguousId, match=r"', \.\.\."):
        await store.approvals.find_approval(str(first.job_id))


async def test_lists_of_approvals(store: Store) -> None:
    free = await asked(store)
    anns = await asked(store, assignees=("ann",))
    bobs = await asked(store, assignees=("bob", "carol"))
    done = await store.approvals.decide(approve(await asked(store)))

    async def listed(**filter: Any) -> list[Approval]:
        return list((await store.approvals.list_approvals(**filter)).items)

    assert await listed() == [done, bobs, anns, free]
    assert await listed(statuses=[ApprovalStatus.PENDING]) == [bobs, anns, free]
    assert await listed(statuses=[ApprovalStatus.APPROVED, ApprovalStatus.DENIED]) == [done]
    assert await listed(job_id=anns.job_id) == [anns]
    assert await listed(assignee="carol") == [done, bobs, free]
    assert await listed(assignee="ann", statuses=[ApprovalStatus.PENDING]) == [anns, free]
    assert await listed(assignee="car") == [done, free]
    first = await store.approvals.list_approvals(limit=3)
    assert list(first.items) == [done, bobs, anns]
    assert (await store.approvals.list_approvals(limit=3, cursor=first.next_cursor)).items == (free,)


async def test_no_table_event_or_list_holds_the_token(file_store: Store, shell: Shell) -> None:
    tokens = [new_token() for _ in range(3)]
    lease = await started(file_store)
    for n, token in enumerate(tokens):
        await file_store.approvals.request_approval(lease, new_approval(f"key {n}", token=token))
    await file_store.leases.finish(lease, Outcome(S.WAITING_FOR_APPROVAL))
    replacement = new_token()
    [last, *_] = (await file_store.approvals.list_approvals(job_id=lease.job_id)).items
    await file_store.approvals.replace_token(last.id, hash_token(replacement))
    await file_store.approvals.decide(by_token(tokens[0]))
    again = (await claim(file_store, lease.job_id)).lease
    await file_store.leases.record(again, [event()])
    with pytest.raises(PerdureError) as refused:
        await file_store.approvals.decide(by_token(tokens[0]))
    await file_store.approvals.decide(by_token(tokens[1], verdict="deny"))

    log = repr(await checked_log(file_store, lease.job_id))
    shown = log + repr(await file_store.approvals.list_approvals()) + repr(await file_store.jobs.get_job(lease.job_id))
    tables = await dump(shell)
    assert str(lease.job_id) in tables["approvals"]
    for token in (*tokens, replacement):
        assert token not in shown + str(refused.value) + repr(tables)
        assert hash_token(token) not in shown + str(refused.value)
        assert [name for name, text in tables.items() if hash_token(token) in text] in ([], ["approvals"])
