"""Budgets of agents and tenants: set aside in all of them or in none, settled with the log, counted once."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal

import pytest

from perdure.model.budgets import Amounts, Budget
from perdure.model.effects import raise_budget, release_hold, spend_budget, use_hold
from perdure.model.errors import LeaseLost
from perdure.model.jobs import Lease
from perdure.model.shared_budgets import TENANT, SharedBudget, scope_of
from perdure.store.protocol import Store
from tests.conformance.support import claim, run_out, started

AGENT = scope_of("ann")
BOTH = (AGENT, TENANT)


@pytest.fixture(autouse=True)
async def nothing_is_left(store: Store) -> AsyncIterator[None]:
    """The tenant may be that of other tests."""
    yield
    for scope in BOTH:
        await store.limits.unset_budget(scope)


async def given(store: Store, *, agent: Budget, tenant: Budget | None = None) -> Lease:
    await store.limits.set_budget(AGENT, agent, by="ann")
    if tenant is not None:
        await store.limits.set_budget(TENANT, tenant, by="ann")
    return await started(store)


async def of(store: Store, scope: str = AGENT) -> SharedBudget:
    [found] = [budget for budget in await store.limits.list_budgets() if budget.scope == scope]
    return found


async def test_what_fits_is_set_aside_in_all_budgets_or_in_none(store: Store) -> None:
    lease = await given(store, agent=Budget(tokens=100), tenant=Budget(cost="1.00"))
    need = Amounts(tokens=60, cost=Decimal("0.6"), tool_calls=1)
    assert (await store.limits.reserve_budget(lease, "a", BOTH, need)).breach is None
    assert (await store.limits.reserve_budget(lease, "a", BOTH, need)).breach is None  # the same call
    breach = (await store.limits.reserve_budget(lease, "b", BOTH, Amounts(tokens=10, cost=Decimal("0.6")))).breach
    assert breach is not None
    assert (breach.thing, breach.waits, breach.budget.scope) == ("cost", True, TENANT)
    assert (await of(store)).held == {"tokens": 60, "cost": Decimal("0.6"), "tool_calls": 0, "children": 0}
    assert (await of(store)).spent["tool_calls"] == 1
    used = Amounts(50, Decimal("0.55"))
    effects = [spend_budget(store.tenant_id, scope, used) for scope in BOTH]
    await store.leases.record(lease, [], effects=[*effects, use_hold("a", used)])
    assert ((await of(store)).spent["tokens"], (await of(store)).held["tokens"]) == (50, 10)
    await store.leases.record(lease, [], effects=[release_hold("a")])
    tenant = await of(store, TENANT)
    assert (tenant.left, tenant.held["cost"]) == ({"cost": Decimal("0.45")}, 0)
    breach = (await store.limits.reserve_budget(lease, "b", BOTH, Amounts(cost=Decimal("0.6")))).breach
    assert breach is not None
    assert not breach.waits


async def test_parallel_calls_of_many_jobs_never_have_more_than_there_is(store: Store) -> None:
    await given(store, agent=Budget(tokens=100), tenant=Budget(tokens=1000))
    leases = [await started(store) for _ in range(8)]
    answers = await asyncio.gather(
        *(store.limits.reserve_budget(lease, "call", BOTH, Amounts(tokens=30)) for lease in leases)
    )
    assert sum(answer.breach is None for answer in answers) == 3
    fitting = [lease for lease, answer in zip(leases, answers, strict=True) if answer.breach is None]
    used = Amounts(tokens=20)
    await asyncio.gather(
        *(
            store.leases.record(
                lease,
                [],
                effects=[spend_budget(store.tenant_id, AGENT, used), use_hold("call", used), release_hold("call")],
            )
            for lease in fitting
        )
    )
    assert ((await of(store)).spent["tokens"], (await of(store)).held["tokens"]) == (60, 0)


async def test_a_warning_is_given_once_and_again_after_more_was_given(store: Store) -> None:
    lease = await given(store, agent=Budget(tokens=100))
    assert (await store.limits.reserve_budget(lease, "a", BOTH, Amounts(tokens=79))).warned == {}
    assert (await store.limits.reserve_budget(lease, "b", BOTH, Amounts(tokens=1))).warned == {AGENT: ["tokens"]}
    assert (await store.limits.reserve_budget(lease, "c", BOTH, Amounts(tokens=1))).warned == {}
    assert (await of(store)).warned == ("tokens",)
    more = [raise_budget(store.tenant_id, AGENT, (await of(store)).extensions, Amounts(tokens=5)) for _ in range(2)]
    for effect in more:  # the second one comes too late
        await store.leases.record(lease, [], effects=[effect])
    budget = await of(store)
    assert (budget.limits, budget.warned) == ({"tokens": 105}, ())


async def test_what_an_attempt_leaves_counts_as_spent_once_it_is_over(store: Store) -> None:
    lease = await given(store, agent=Budget(tokens=100))
    await store.limits.reserve_budget(lease, "a", BOTH, Amounts(tokens=40))
    used = Amounts(tokens=15)
    await store.leases.record(lease, [], effects=[spend_budget(store.tenant_id, AGENT, used), use_hold("a", used)])
    await store.limits.fold_budgets()
    assert (await of(store)).held["tokens"] == 25  # its attempt goes on
    await run_out(store, lease)
    while await store.leases.reap(worker_id="reaper"):
        pass
    assert await store.limits.fold_budgets() == 1
    assert ((await of(store)).spent["tokens"], (await of(store)).held["tokens"]) == (40, 0)
    with pytest.raises(LeaseLost):
        await store.limits.reserve_budget(lease, "b", BOTH, Amounts(tokens=1))


async def test_a_call_that_was_cut_off_is_set_aside_again_when_it_is_made_again(store: Store) -> None:
    lease = await given(store, agent=Budget(tokens=100), tenant=Budget(tokens=1000))
    await store.limits.reserve_budget(lease, "a", BOTH, Amounts(tokens=60))
    await run_out(store, lease)
    while await store.leases.reap(worker_id="reaper"):
        pass
    again = (await claim(store, lease.job_id)).lease
    breach = (await store.limits.reserve_budget(again, "a", BOTH, Amounts(tokens=60))).breach  # before any worker folds
    assert breach is not None
    assert (breach.thing, breach.waits) == ("tokens", False)
    for _ in range(2):
        assert (await store.limits.reserve_budget(again, "a", BOTH, Amounts(tokens=40))).breach is None
        for scope in BOTH:
            assert ((await of(store, scope)).spent["tokens"], (await of(store, scope)).held["tokens"]) == (60, 40)
    assert await store.limits.fold_budgets() == 0
    await store.leases.record(again, [], effects=[release_hold("a")])
    assert ((await of(store)).spent["tokens"], (await of(store)).held["tokens"]) == (60, 0)


async def test_a_budget_that_is_set_again_keeps_what_was_spent_and_one_that_is_removed_does_not(store: Store) -> None:
    lease = await given(store, agent=Budget(tokens=10))
    await store.leases.record(lease, [], effects=[spend_budget(store.tenant_id, AGENT, Amounts(tokens=8))])
    await store.limits.set_budget(AGENT, Budget(tokens=20, on_breach="fail"), by="ann")
    budget = await of(store)
    assert (budget.left, budget.on_breach, budget.agent) == ({"tokens": 12}, "fail", "ann")
    assert await store.limits.unset_budget(AGENT)
    assert not await store.limits.unset_budget(AGENT)
    await store.limits.set_budget(AGENT, Budget(tokens=20), by="ann")
    assert (await of(store)).left == {"tokens": 20}
