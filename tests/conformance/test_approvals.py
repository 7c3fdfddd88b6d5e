"""Approvals: requested once, and decided once by those who may."""

import asyncio
from datetime import timedelta
from itertools import product
from uuid import uuid4

import pytest

from perdure.model.approvals import Approval, ApprovalStatus
from perdure.model.errors import (
    AlreadyDecided,
    ApprovalChanged,
    ApprovalExpired,
    ApprovalNotFound,
    NotAssigned,
    WrongToken,
)
from perdure.model.ids import hash_json, hash_token, new_token
from perdure.model.jobs import Outcome
from perdure.store.protocol import Store
from tests.conformance.support import (
    HOUR,
    NOTE,
    S,
    approve,
    asked,
    by_token,
    case,
    checked_log,
    claim,
    deny,
    near,
    new_approval,
    passed,
    started,
)


async def test_asking_stores_the_question_its_wait_and_its_event(store: Store) -> None:
    lease = await started(store, kind="publish")
    payload = '{"text":  "你好"}'
    new = new_approval("publish", payload=payload, assignees=("ann", "bob"), expires_in=HOUR, on_expiry="deny")
    approval = await store.approvals.request_approval(lease, new)
    assert approval == await store.approvals.get_approval(new.id)
    assert (approval.id, approval.tenant_id, approval.job_id, approval.key) == (
        new.id,
        store.tenant_id,
        lease.job_id,
        "publish",
    )
    assert (approval.title, approval.payload, approval.requester) == ("Publish this?", {"text": "你好"}, "echo")
    assert approval.payload_digest == hash_json(payload)
    assert (approval.assignees, approval.on_expiry, approval.on_deny) == (("ann", "bob"), "deny", "fail")
    assert (approval.status, approval.kind, approval.edited) == (ApprovalStatus.PENDING, "approval", False)
    assert near(approval.requested_at, await store.now())
    assert near(approval.expires_at, approval.requested_at + timedelta(hours=1), within=0.01)
    assert (approval.decided_at, approval.decided_by, approval.decision_payload) == (None, None, None)
    assert (approval.job_kind, approval.job_status) == ("publish", "RUNNING")

    [wait] = (await store.jobs.get_job(lease.job_id)).waits
    assert (wait.key, wait.kind, wait.subject_id) == ("publish", "approval", str(approval.id))
    said = (await checked_log(store, lease.job_id))[-1]
    assert said.type == "approval_requested"
    assert (said.payload["key"], said.payload["approval"]) == ("publish", str(approval.id))


async def test_asking_renews_the_lease(store: Store) -> None:
    lease = await started(store)
    before = (await store.jobs.get_job(lease.job_id)).lease
    assert before is not None
    assert not before.started
    await asyncio.sleep(0.02)
    await store.approvals.request_approval(lease, new_approval())
    after = (await store.jobs.get_job(lease.job_id)).lease
    assert after is not None
    assert after.started
    assert after.expires_at > before.expires_at


async def test_a_key_is_asked_once_also_by_a_later_attempt(store: Store) -> None:
    lease = await started(store)
    first = await store.approvals.request_approval(lease, new_approval("publish"))
    assert (await store.approvals.request_approval(lease, new_approval("publish", payload="2"))) == first
    await store.leases.finish(lease, Outcome(S.RETRY))
    again = (await claim(store, lease.job_id)).lease
    assert (await store.approvals.request_approval(again, new_approval("publish"))).id == first.id
    await store.approvals.decide(approve(first))
    assert (await store.approvals.request_approval(again, new_approval("publish"))).status is ApprovalStatus.APPROVED
    other = await store.approvals.request_approval(again, new_approval("archive"))
    assert other.id != first.id
    log = await checked_log(store, lease.job_id)
    assert [e.payload["key"] for e in log if e.type == "approval_requested"] == ["publish", "archive"]


async def test_a_decision_says_who_when_why_and_via_what(store: Store) -> None:
    approval = await asked(store)
    decided = await store.approvals.decide(approve(approval, comment="looks good"))
    assert decided == await store.approvals.get_approval(approval.id)
    assert (decided.status, decided.decided_by, decided.decided_via, decided.comment) == (
        ApprovalStatus.APPROVED,
        "ann",
        "test",
        "looks good",
    )
    assert near(decided.decided_at, await store.now())
    assert (decided.edited, decided.decision_payload, decided.final_payload) == (False, None, approval.payload)
    said = (await checked_log(store, approval.job_id))[-1]
    assert said.type == "approval_decided"
    assert said.payload["approval"] == str(approval.id)
    assert (said.payload["decision"], said.payload["actor"], said.payload["via"]) == ("APPROVED", "ann", "test")


async def test_a_denial_is_kept_alike(store: Store) -> None:
    approval = await asked(store)
    decided = await store.approvals.decide(deny(approval))
    assert (decided.status, decided.comment) == (ApprovalStatus.DENIED, "not like this")
    assert (await checked_log(store, approval.job_id))[-1].payload["decision"] == "DENIED"


@pytest.mark.parametrize("edited", ['{"publish": "draft 2"}', "null", "[]"])
async def test_a_decision_may_change_the_payload(store: Store, edited: str) -> None:
    approval = await asked(store)
    decided = await store.approvals.decide(approve(approval, edited_payload=edited))
    assert decided.edited
    assert decided.payload == {"publish": "draft 1"}, "what was asked stays"
    assert decided.final_payload == decided.decision_payload != decided.payload


async def test_the_holder_of_the_token_decides(store: Store) -> None:
    token = new_token()
    approval = await asked(store, token=token, assignees=("ann",))
    decided = await store.approvals.decide(by_token(token))
    assert (decided.id, decided.status, decided.decided_by) == (approval.id, ApprovalStatus.APPROVED, "the holder")


async def test_a_wrong_token_decides_nothing(store: Store) -> None:
    approval = await asked(store)
    with pytest.raises(WrongToken):
        await store.approvals.decide(by_token(new_token()))
    assert (await store.approvals.get_approval(approval.id)).status is ApprovalStatus.PENDING


async def test_a_used_token_differs_from_a_wrong_one(store: Store) -> None:
    token = new_token()
    await asked(store, token=token)
    await store.approvals.decide(by_token(token))
    with pytest.raises(AlreadyDecided):
        await store.approvals.decide(by_token(token, verdict="deny"))


async def test_the_token_of_a_question_decided_by_id_is_used_too(store: Store) -> None:
    token = new_token()
    await store.approvals.decide(deny(await asked(store, token=token)))
    with pytest.raises(AlreadyDecided):
        await store.approvals.decide(by_token(token))


async def test_a_replaced_token_stops_working(store: Store) -> None:
    old, new = new_token(), new_token()
    approval = await asked(store, token=old)
    assert (await store.approvals.replace_token(approval.id, hash_token(new))).id == approval.id
    with pytest.raises(WrongToken):
        await store.approvals.decide(by_token(old))
    assert (await store.approvals.decide(by_token(new))).id == approval.id


async def test_a_token_can_be_given_to_a_question_that_had_none(store: Store) -> None:
    first = await asked(store, token_hash=None)
    second = await asked(store, token_hash=None)
    token = new_token()
    await store.approvals.replace_token(first.id, hash_token(token))
    assert (await store.approvals.decide(by_token(token))).id == first.id
    assert (await store.approvals.get_approval(second.id)).status is ApprovalStatus.PENDING


async def test_only_a_pending_question_gets_another_token(store: Store) -> None:
    decided, late = await asked(store), await asked(store, expires_in=0.001)
    await store.approvals.decide(approve(decided))
    await passed(store, late.expires_at)
    for approval_id, error in ((decided.id, AlreadyDecided), (late.id, ApprovalExpired), (uuid4(), ApprovalNotFound)):
        with pytest.raises(error):
            await store.approvals.replace_token(approval_id, hash_token(new_token()))


async def test_what_changed_since_it_was_looked_at_is_not_approved(store: Store) -> None:
    token = new_token()
    approval = await asked(store, token=token)
    for decision in (approve(approval, expected_digest=hash_json("2")), by_token(token, expected_digest="")):
        with pytest.raises(ApprovalChanged):
            await store.approvals.decide(decision)
    assert (
        await store.approvals.decide(approve(approval, expected_digest=approval.payload_digest))
    ).status == "APPROVED"


async def test_only_an_assignee_decides_by_id(store: Store) -> None:
    approval = await asked(store, assignees=("bob", "eve"))
    for by in ("ann", "", "bo", "bob,eve"):
        with pytest.raises(NotAssigned):
            await store.approvals.decide(approve(approval, by=by))
    assert (await store.approvals.decide(approve(approval, by="eve"))).decided_by == "eve"


async def test_the_first_decision_stands(store: Store) -> None:
    for first, second in product([approve, deny], repeat=2):
        with case(first, second):
            approval = await asked(store)
            decided = await store.approvals.decide(first(approval, by="bob"))
            log = await checked_log(store, approval.job_id)
            with pytest.raises(AlreadyDecided):
                await store.approvals.decide(second(approval))
            assert await store.approvals.get_approval(approval.id) == decided
            assert await checked_log(store, approval.job_id) == log


async def test_of_many_decisions_at_once_exactly_one_wins(store: Store) -> None:
    approval = await asked(store)
    decisions = [(approve, deny)[n % 2](approval, by=f"person {n}") for n in range(12)]
    results = await asyncio.gather(*(store.approvals.decide(d) for d in decisions), return_exceptions=True)
    [winner] = [r for r in results if isinstance(r, Approval)]
    assert [type(r) for r in results if r is not winner] == [AlreadyDecided] * 11
    assert await store.approvals.get_approval(approval.id) == winner
    log = await checked_log(store, approval.job_id)
    assert [e.payload["actor"] for e in log if e.type == "approval_decided"] == [winner.decided_by]


async def test_of_two_instances_exactly_one_decides(file_store: Store, twin: Store) -> None:
    for _ in range(15):
        approval = await asked(file_store)
        results = await asyncio.gather(
            file_store.approvals.decide(approve(approval)),
            twin.approvals.decide(deny(approval)),
            return_exceptions=True,
        )
        assert sorted(type(r).__name__ for r in results) == ["AlreadyDecided", "Approval"]


async def test_too_late_is_too_late_before_and_after_the_sweep(store: Store) -> None:
    token = new_token()
    approval = await asked(store, token=token, expires_in=0.001)
    await passed(store, approval.expires_at)
    for _ in range(2):
        for decision in (approve(approval), by_token(token)):
            with pytest.raises(ApprovalExpired):
                await store.approvals.decide(decision)
        await store.leases.expire()
    assert (await store.approvals.get_approval(approval.id)).status is ApprovalStatus.EXPIRED


async def test_a_question_of_a_finished_job_is_closed(store: Store) -> None:
    approval = await asked(store)
    await store.jobs.cancel(approval.job_id, note=NOTE, force=True)
    with pytest.raises(AlreadyDecided):
        await store.approvals.decide(approve(approval))
    assert (await store.approvals.get_approval(approval.id)).status is ApprovalStatus.CANCELLED
    await checked_log(store, approval.job_id)
