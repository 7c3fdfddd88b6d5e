"""Budgets that many jobs share: that of an agent, and that of a tenant. Pure rules; the store keeps one row for each, and a row
for what each running call has set aside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from perdure.model.agents import KEY_PREFIX, key_of_agent
from perdure.model.budgets import Amounts, Budget, OnBreach, shown
from perdure.model.cost import ZERO, cost_of, text_of_cost
from perdure.model.errors import InvalidBudget

TENANT = "tenant"
"""The scope of the budget of a tenant; that of an agent is `agent:` and its id."""
SHARED = ("tokens", "cost", "tool_calls", "children")
"""What a shared budget may limit."""


def scope_of(agent: str | None) -> str:
    """The scope of the budget of this agent; None: of the tenant."""
    return TENANT if agent is None else key_of_agent(agent)


def check_shared(budget: Budget) -> Budget:
    """Raise InvalidBudget for what many jobs cannot share."""
    if budget.wall_time is not None:
        raise InvalidBudget("the budget of an agent or a tenant has no wall_time", hint="give it to the jobs")
    if not budget.limits:
        raise InvalidBudget(
            "the budget of an agent or a tenant limits something", hint="for example Budget(tokens=10_000)"
        )
    return budget


class Hold(NamedTuple):
    """What one call has set aside of one budget, and what it has reported of that."""

    scope: str
    tokens: int
    cost: Decimal
    used_tokens: int
    used_cost: Decimal

    @property
    def left(self) -> Amounts:
        """What is still set aside."""
        return Amounts(self.tokens - self.used_tokens, self.cost - self.used_cost).not_negative()


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """The budget of an agent or a tenant.

    agent: None for the tenant's. limits: what is limited, and how much there is of it, with what was given later. spent: what was
    reported, and calls, and what calls had set aside that a crash cut off. held: what running calls have set aside. on_breach,
    warn_at: as in `Budget`. warned: what is almost used up. extensions: how often a person has given more.
    """

    agent: str | None
    limits: dict[str, Any]
    spent: dict[str, Any]
    held: dict[str, Any]
    on_breach: OnBreach
    warn_at: float
    warned: tuple[str, ...]
    extensions: int

    @property
    def left(self) -> dict[str, Any]:
        """What is left of each thing that is limited, never less than 0."""
        return {
            thing: max(limit - self.spent[thing] - self.held[thing], type(limit)(0))
            for thing, limit in self.limits.items()
        }

    @property
    def name(self) -> str:
        """`agent 'reviewer'` or `the tenant`."""
        return "the tenant" if self.agent is None else f"agent '{self.agent}'"

    @property
    def line(self) -> str:
        """`the tenant: 2,000 tokens of 10,000 tokens left`."""
        parts = [f"{shown(thing, has)} of {shown(thing, self.limits[thing])}" for thing, has in self.left.items()]
        return f"{self.name}: {', '.join(parts)} left"

    @property
    def scope(self) -> str:
        """Under which it is stored."""
        return scope_of(self.agent)

    def lacking(self, need: Amounts, *, waiting: bool = False) -> str | None:
        """What there is too little of for a call that needs this. waiting: as if running calls had used nothing."""
        for thing, limit in self.limits.items():
            has = limit - self.spent[thing] - (0 if waiting else self.held[thing])
            if has < getattr(need, thing) or (has <= 0 and thing in ("tokens", "cost")):
                return thing
        return None

    def warnings(self, need: Amounts) -> list[str]:
        """What this call brings above the threshold."""
        found = []
        for thing, limit in self.limits.items():
            used = self.spent[thing] + self.held[thing] + getattr(need, thing)
            part = Decimal(str(self.warn_at)) if isinstance(limit, Decimal) else self.warn_at
            if thing not in self.warned and used >= limit * part:
                found.append(thing)
        return found


class Breach(NamedTuple):
    """A call does not fit. thing: what there is too little of. waits: it fits once running calls have ended."""

    budget: SharedBudget
    thing: str
    waits: bool

    @property
    def text(self) -> str:
        """For people."""
        budget, thing = self.budget, self.thing
        text = f"the budget of {budget.name} of {shown(thing, budget.limits[thing])} is used up: "
        text += f"{shown(thing, budget.spent[thing])} spent"
        return text + (f", {shown(thing, budget.held[thing])} set aside" if budget.held[thing] else "")


class Reserved(NamedTuple):
    """The answer to a call that asks. breach: why it may not begin; None: it may, and this is set aside. warned: of each scope
    what it brought above the threshold."""

    breach: Breach | None
    warned: Mapping[str, Sequence[str]]
    budgets: Sequence[SharedBudget]


def decide(budgets: Sequence[SharedBudget], need: Amounts) -> Reserved:
    """Whether a call that needs this may begin under all of these budgets."""
    for budget in budgets:
        if (thing := budget.lacking(need)) is not None:
            return Reserved(Breach(budget, thing, budget.lacking(need, waiting=True) is None), {}, budgets)
    return Reserved(None, {b.scope: found for b in budgets if (found := b.warnings(need))}, budgets)


def shared_budget_of(row: Mapping[str, Any], holds: Iterable[Hold]) -> SharedBudget:
    """A budget as it is stored, with what calls have set aside of it."""
    held = Amounts()
    for hold in holds:
        if hold.scope == row["scope"]:
            held += hold.left
    limits = {thing: row[f"max_{thing}"] for thing in SHARED if row[f"max_{thing}"] is not None}
    spent: dict[str, Any] = {thing: row[thing] for thing in SHARED}
    for values in (limits, spent):
        if "cost" in values:
            values["cost"] = cost_of(values["cost"])
    agent = row["scope"].removeprefix(KEY_PREFIX)
    return SharedBudget(
        agent=None if row["scope"] == TENANT else agent,
        limits=limits,
        spent=spent,
        held={thing: getattr(held, thing) for thing in SHARED},
        on_breach=row["on_breach"],
        warn_at=row["warn_at"],
        warned=tuple(row["warned"].split()),
        extensions=row["extensions"],
    )


def hold_of(row: Mapping[str, Any]) -> Hold:
    """A hold as it is stored."""
    return Hold(row["scope"], row["tokens"], cost_of(row["cost"]), row["used_tokens"], cost_of(row["used_cost"]))


def values_of(budget: Budget) -> dict[str, Any]:
    """The columns of a budget that is set."""
    limits = {f"max_{thing}": getattr(budget, thing) for thing in SHARED}
    return limits | {"on_breach": budget.on_breach, "warn_at": float(budget.warn_at)}


def plain(value: Any) -> Any:
    """A cost as text, for JSON."""
    return text_of_cost(value) if isinstance(value, Decimal) else value


def is_nothing(amounts: Amounts) -> bool:
    """Whether nothing is to be set aside or counted."""
    return amounts == Amounts(cost=ZERO)
