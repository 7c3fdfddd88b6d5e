"""The budgets of a job's agent and tenant, in one attempt: what a call may use is set aside in the database before it, because
other jobs in other processes use the same budgets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from decimal import Decimal

from perdure.model.budgets import NOTHING, Amounts, amounts_of
from perdure.model.effects import Effect, raise_budget, release_hold, spend_budget, use_hold
from perdure.model.errors import BudgetExceeded, Denied, InvalidBudget, LeaseLost, Suspended
from perdure.model.events import NewEvent
from perdure.model.shared_budgets import TENANT, Breach, Reserved, is_nothing, plain
from perdure.model.waits import APPROVAL
from perdure.runtime.context import approvals
from perdure.runtime.context.approvals import Question
from perdure.runtime.of_agent import may_be_of_agent
from perdure.runtime.run import Run

_KEY = "budget[{}#{}]"
"""Of the approvals that ask for more."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two looks whether running calls have ended."""


def shared_scopes(run: Run) -> tuple[str, ...]:
    """The scopes of the shared budgets that are for this job; mostly none, without any read."""
    if not run.budget_scopes:
        return ()
    own = [TENANT, *run.history.budget_scopes]
    if may_be_of_agent(run.claimed) and run.claimed.concurrency_key is not None:
        own.append(run.claimed.concurrency_key)
    return tuple(scope for scope in dict.fromkeys(own) if scope in run.budget_scopes)


def shared_spending(run: Run, tokens: int, cost: Decimal) -> list[Effect]:
    """What is to be written with usage that is reported outside of a call."""
    return [spend_budget(run.store.tenant_id, scope, Amounts(tokens, cost)) for scope in shared_scopes(run)]


class SharedBudgets:
    """Those that are for the job of this attempt."""

    def __init__(self, run: Run, scopes: Sequence[str]) -> None:
        self._run = run
        self.scopes = tuple(scopes)
        self._holds: set[str] = set()
        self._asking = asyncio.Lock()
        self._asked_last: tuple[str, int] | None = None
        """The scope, and how many extensions it had."""
        for kind, key in run.history.approvals:
            if kind == APPROVAL.name and any(key.startswith(f"budget[{scope}#") for scope in self.scopes):
                run.history.meet(kind, key)

    async def admit(self, key: str, need: Amounts) -> None:
        """Wait until this call fits, and set aside what it may use. Raises BudgetExceeded, Suspended."""
        run, pause = self._run, _FIRST_PAUSE
        while True:
            reserved = await self._reserve(key, need)
            breach = reserved.breach
            if breach is None:
                if not is_nothing(need) or reserved.warned:
                    self._holds.add(key)
                await self._note_warnings(reserved)
                return
            if breach.waits:
                with run.busy():
                    await run.clock.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                if run.must_enter:
                    await run.enter()
            elif breach.budget.on_breach == "fail":
                raise BudgetExceeded(breach.text, thing=breach.thing)
            else:
                async with self._asking:
                    if self._asked_last != (breach.budget.scope, breach.budget.extensions):  # else a parallel call has
                        await self._ask(breach, need)

    async def _reserve(self, key: str, need: Amounts) -> Reserved:
        run = self._run
        try:
            with run.busy():
                return await run.store.limits.reserve_budget(run.lease, key, self.scopes, need)
        except LeaseLost:
            run.lease_lost()
            raise Suspended("lease lost") from None

    async def _note_warnings(self, reserved: Reserved) -> None:
        events = []
        for budget in reserved.budgets:
            for thing in reserved.warned.get(budget.scope, ()):
                spent = budget.spent[thing] + budget.held[thing]
                payload = {"thing": thing, "spent": plain(spent), "limit": plain(budget.limits[thing])}
                events.append(NewEvent("budget_warned", json.dumps({**payload, "scope": budget.scope})))
        if events:
            await self._run.record(events)

    async def _ask(self, breach: Breach, need: Amounts) -> None:
        run, budget, thing = self._run, breach.budget, breach.thing
        self._asked_last = budget.scope, budget.extensions
        key = _KEY.format(budget.scope, budget.extensions + 1)
        if run.history.unmet:
            run.history.meet(APPROVAL.name, key)
        more = max(getattr(need, thing), budget.limits[thing])
        question = Question(
            key=key,
            title=f"{breach.text}. Allow more?",
            payload={"scope": budget.scope, "thing": thing, "goal": run.claimed.goal, "extend": {thing: plain(more)}},
            expires_in=None,
            assignees=(),
            on_expiry="fail",
            on_deny="resume",
        )
        try:
            decision = await approvals.approve(run, question, None, keep_changed=True)
        except Denied as denied:
            text = f"{breach.text}, and {denied.by or 'a person'} allowed no more"
            raise BudgetExceeded(text, thing=thing) from None
        try:
            given = amounts_of(decision.payload["extend"])
        except (InvalidBudget, KeyError, TypeError, AttributeError):
            given = NOTHING  # the edited payload says nothing: it is asked again
        payload = {"key": key, "by": decision.by, "scope": budget.scope, **given.as_json()}
        effect = raise_budget(run.store.tenant_id, budget.scope, budget.extensions, given)
        await run.record([NewEvent("budget_extended", json.dumps(payload))], effect)

    def usage(self, key: str | None, used: Amounts) -> list[Effect]:
        """What is to be written with usage that is reported. key: of the call that it belongs to."""
        effects = [spend_budget(self._run.store.tenant_id, scope, used) for scope in self.scopes]
        return [*effects, use_hold(key, used)] if key in self._holds else effects

    def called_again(self, tool_calls: int) -> list[Effect]:
        """A call is made once more."""
        again = Amounts(tool_calls=tool_calls)
        return [spend_budget(self._run.store.tenant_id, scope, again) for scope in self.scopes] if tool_calls else []

    def released(self, key: str) -> list[Effect]:
        """What is to be written when it is known how a call ended."""
        if key not in self._holds:
            return []
        self._holds.discard(key)
        return [release_hold(key)]
