"""Rules about tools: which one decides a call, until when, and for whose jobs."""

import pytest

from perdure.model.approval_rules import NewRule, RuleVerdict
from perdure.model.errors import ApprovalRuleNotFound
from perdure.model.ids import uuid7
from perdure.store.protocol import Store
from tests.conformance.support import enqueue


def rule(
    scope: str, verdict: RuleVerdict = "allow", *, tool: str = "deploy", expires_in: float | None = None
) -> NewRule:
    return NewRule(uuid7(), tool, scope, verdict, "ann", "test", "why", expires_in)


async def test_a_rule_decides_for_the_jobs_in_its_scope(store: Store) -> None:
    own = await enqueue(store, agent_id="ann", session_id="s1")
    plain = await enqueue(store)
    for scope in (f"job:{own}", "agent:ann", "session:ann/s1", "user:u"):
        added = await store.approvals.add_rule(rule(scope, tool=scope))
        found = await store.approvals.rule_for(scope, own, "u")
        assert found == added
        assert await store.approvals.rule_for(scope, plain, "other") is None
        assert await store.approvals.rule_for("another tool", own, "u") is None
    everyones = await store.approvals.add_rule(rule("tenant"))
    assert await store.approvals.rule_for("deploy", plain, "other") == everyones


async def test_one_that_denies_comes_first_then_the_newest(store: Store) -> None:
    job = await enqueue(store)
    denies = await store.approvals.add_rule(rule("tenant", "deny"))
    await store.approvals.add_rule(rule("user:u"))
    newest = await store.approvals.add_rule(rule("tenant"))
    assert await store.approvals.rule_for("deploy", job, "u") == denies
    await store.approvals.revoke_rule(denies.id, by="bo", via="test", reason="over")
    assert await store.approvals.rule_for("deploy", job, "u") == newest


async def test_a_rule_that_is_revoked_or_expired_decides_no_more_and_stays_in_the_list(store: Store) -> None:
    job = await enqueue(store)
    expired = await store.approvals.add_rule(rule("tenant", expires_in=0))
    revoked = await store.approvals.add_rule(rule("tenant"))
    first = await store.approvals.revoke_rule(revoked.id, by="bo", via="test")
    again = await store.approvals.revoke_rule(revoked.id, by="cy", via="test")
    assert (first.revoked_by, again) == ("bo", first)
    assert await store.approvals.rule_for("deploy", job, "u") is None
    assert (await store.approvals.list_rules()).items == ()
    page = await store.approvals.list_rules(only_live=False, limit=1)
    rest = await store.approvals.list_rules(only_live=False, limit=1, cursor=page.next_cursor)
    assert [r.id for r in (*page.items, *rest.items)] == [revoked.id, expired.id]


async def test_a_rule_is_found_by_the_end_of_its_id_and_written_once(store: Store) -> None:
    new = rule("tenant")
    added = await store.approvals.add_rule(new)
    assert await store.approvals.add_rule(new) == added
    assert await store.approvals.find_rule(added.short_id) == added.id
    with pytest.raises(ApprovalRuleNotFound):
        await store.approvals.find_rule("abcdef")
    with pytest.raises(ApprovalRuleNotFound):
        await store.approvals.revoke_rule(uuid7(), by="bo", via="test")
