"""Budgets: what a job may use at most, and what its log says that it has used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias, get_args

from perdure.model.cost import MOST_COST, MOST_DIGITS, ZERO, cost_of, text_of_cost
from perdure.model.errors import InvalidBudget
from perdure.model.events import Event
from perdure.model.states import Status
from perdure.model.steps import COPIED
from perdure.model.timing import Duration, seconds, span

OnBreach: TypeAlias = Literal["ask", "fail"]
"""What happens when a budget is used up: a person is asked for more, or the job fails."""

MOST = 10**15
"""Of every whole number in a budget."""

TYPES = (
    "budget_set",
    "budget_reserved",
    "budget_settled",
    "budget_extended",
    "budget_warned",
    "usage_recorded",
    "tool_called",
    "child_spawned",
)
"""The events that `Use` reads, besides transitions."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """So much of each thing that a budget limits. cost: in your currency. wall_time: seconds in RUNNING."""

    tokens: int = 0
    cost: Decimal = ZERO
    tool_calls: int = 0
    wall_time: float = 0.0
    children: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(*(a + b for a, b in zip(self.values(), other.values(), strict=True)))

    def __sub__(self, other: Amounts) -> Amounts:
        return Amounts(*(a - b for a, b in zip(self.values(), other.values(), strict=True)))

    def values(self) -> tuple[Any, ...]:
        """One number for each of THINGS."""
        return self.tokens, self.cost, self.tool_calls, self.wall_time, self.children

    def not_negative(self) -> Amounts:
        """These, with 0 for what is below 0."""
        return Amounts(*(max(value, type(value)(0)) for value in self.values()))

    def as_json(self) -> dict[str, Any]:
        """Those that are not 0; a cost is text."""
        return {name: _json(value) for name, value in zip(THINGS, self.values(), strict=True) if value}


THINGS = tuple(f.name for f in fields(Amounts))
NOUNS = {
    "tokens": "tokens",
    "cost": "cost",
    "tool_calls": "tool calls",
    "wall_time": "time",
    "children": "children",
}
NOTHING = Amounts()


@dataclass(frozen=True, slots=True)
class Budget:
    """What a job may use at most. None or 0: no limit.

    tokens, cost: as reported by `ctx.usage`. tool_calls: calls by `ctx.tool`, repeated ones too. wall_time: seconds or text such
    as "2h", in which it runs; waiting for an answer does not count. children: jobs that it spawns.
    on_breach: "ask" a person for more through an approval, or "fail" the job. warn_at: at this part of a limit the event
    `budget_warned` is written. Raises InvalidBudget.
    """

    tokens: int | None = None
    cost: Decimal | float | str | None = None
    tool_calls: int | None = None
    wall_time: Duration | None = None
    children: int | None = None
    on_breach: OnBreach = "ask"
    warn_at: float = 0.8

    def __post_init__(self) -> None:
        for name in ("tokens", "tool_calls", "children"):
            object.__setattr__(self, name, _whole(name, getattr(self, name)))
        object.__setattr__(self, "cost", _cost(self.cost))
        object.__setattr__(self, "wall_time", _time(self.wall_time))
        if self.on_breach not in get_args(OnBreach):
            raise InvalidBudget(f"on_breach of a budget is 'ask' or 'fail', got {self.on_breach!r:.60}")
        warn_at: Any = self.warn_at
        if isinstance(warn_at, bool) or not isinstance(warn_at, int | float) or not 0 < warn_at <= 1:
            raise InvalidBudget(f"warn_at of a budget is a part of it, above 0 and at most 1, got {warn_at!r:.60}")

    @property
    def limits(self) -> dict[str, Any]:
        """What is limited, and how much there is of it."""
        return {name: value for name in THINGS if (value := getattr(self, name)) is not None}

    def as_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {name: _json(value) for name, value in self.limits.items()} | {
            "on_breach": self.on_breach,
            "warn_at": self.warn_at,
        }


def budget_of(stored: Mapping[str, Any]) -> Budget:
    """A budget as it was stored. What a later version added is ignored. Raises InvalidBudget."""
    known = {f.name for f in fields(Budget)}
    budget = Budget(**{name: value for name, value in stored.items() if name in known})
    for name in THINGS:
        if stored.get(name) in (0, "0"):  # what a parent has nothing left of: here 0 is a limit
            object.__setattr__(budget, name, type(getattr(NOTHING, name))(0))
    return budget


def amounts_of(stored: Mapping[str, Any]) -> Amounts:
    """Amounts as they were stored, or typed by a person. Raises InvalidBudget for one that is negative or no number."""
    return Amounts(
        _whole("tokens", stored.get("tokens")) or 0,
        _cost(stored.get("cost")) or ZERO,
        _whole("tool_calls", stored.get("tool_calls")) or 0,
        _time(stored.get("wall_time")) or 0.0,
        _whole("children", stored.get("children")) or 0,
    )


def shown(thing: str, value: Any) -> str:
    """`10,400 tokens`, `cost 1.5`, `3 tool calls`, `2h`."""
    match thing:
        case "cost":
            return f"cost {text_of_cost(value)}"
        case "wall_time":
            return span(max(value, 0.0))
        case _:
            return f"{value:,} {NOUNS[thing]}"


@dataclass(slots=True)
class Reservation:
    """A part of the budget that is set aside for a call or a child. used: of it so far, as reported."""

    amounts: Amounts
    used: Amounts = NOTHING

    @property
    def left(self) -> Amounts:
        """What is still set aside."""
        return (self.amounts - self.used).not_negative()


@dataclass(slots=True)
class Use:
    """What a job has used, and what is set aside, read from its log.

    A reservation that a crash left open stays set aside: whether its call used anything is not known. `spent` counts what was
    reported, what children used, and calls.
    """

    budget: Budget | None = None
    extended: Amounts = NOTHING
    spent: Amounts = NOTHING
    reservations: dict[str, Reservation] = field(default_factory=dict)
    warned: set[str] = field(default_factory=set)
    asked: int = 0
    """How often a person has given more."""
    running_since: datetime | None = None
    children: dict[str, str] = field(default_factory=dict)
    """The keys of the reservations for children, by their ids."""

    def read(self, event: Event) -> None:
        """Count the next event of the job's log."""
        if event.new_status is not None:
            self._move(event)
        payload = event.payload
        if isinstance(payload, dict) and (event.type.startswith("budget_") or COPIED not in payload):
            self._read(event.type, payload)

    def _move(self, event: Event) -> None:
        if event.new_status is Status.RUNNING:
            self.running_since = self.running_since or event.at
        elif self.running_since is not None:
            self.spent += Amounts(wall_time=(event.at - self.running_since).total_seconds())
            self.running_since = None

    def _read(self, type: str, payload: dict[str, Any]) -> None:
        if "scope" in payload and type.startswith("budget_"):
            return  # of the budget of its agent or tenant
        match type:
            case "budget_set":
                self.budget = budget_of(payload["budget"])
            case "budget_reserved":
                self.reservations[payload["key"]] = Reservation(amounts_of(payload))
            case "budget_settled":
                self.reservations.pop(payload["key"], None)
                self.spent += amounts_of(payload)
            case "budget_extended":
                self.extended += amounts_of(payload)
                self.asked += 1
            case "budget_warned":
                self.warned.add(payload["thing"])
            case "usage_recorded":
                used = Amounts(payload.get("tokens", 0), cost_of(payload.get("cost")))
                self.spent += used
                if (reservation := self.reservations.get(payload.get("reserved", ""))) is not None:
                    reservation.used += used
            case "tool_called":
                self.spent += Amounts(tool_calls=1)
            case "child_spawned":
                self.spent += Amounts(children=1)
                if "budget" in payload:
                    self.set_aside(payload["key"], payload["child"], amounts_of(payload["budget"]))
            case _:
                pass

    def set_aside(self, key: str, child: str, amounts: Amounts) -> None:
        """A child gets this part. key: under which it was spawned."""
        self.children[child] = child_key(key)
        self.reservations[child_key(key)] = Reservation(amounts)

    @property
    def reserved(self) -> Amounts:
        """What is set aside."""
        total = NOTHING
        for reservation in self.reservations.values():
            total += reservation.left
        return total

    def left(self, *, now: datetime | None = None) -> dict[str, Any]:
        """What is left of each thing that is limited, never less than 0. now: counts the time since it began to run."""
        if self.budget is None:
            return {}
        spent = self.spent
        if now is not None and self.running_since is not None:
            spent += Amounts(wall_time=max(0.0, (now - self.running_since).total_seconds()))
        left = (self.extended - spent - self.reserved).values()
        there = dict(zip(THINGS, left, strict=True))
        return {thing: max(limit + there[thing], type(limit)(0)) for thing, limit in self.budget.limits.items()}


def child_key(key: str) -> str:
    """The key of the reservation for a child."""
    return f"spawn:{key}"


def use_of(events: Iterable[Event]) -> Use:
    """What the log of a job, or those of its events that have to do with budgets, says of its use."""
    use = Use()
    for event in events:
        use.read(event)
    return use


def summary(use: Use, now: datetime | None = None) -> dict[str, Any] | None:
    """For people and programs: of each thing that is limited the limit, what was spent, what is set aside, and what is left; None
    without a budget."""
    if use.budget is None:
        return None
    left, spent, reserved = use.left(now=now), dict(_pairs(use.spent)), dict(_pairs(use.reserved))
    extended = dict(_pairs(use.extended))
    things = {
        thing: {
            "limit": _json(limit + extended[thing]),
            "spent": _json(spent[thing]),
            "reserved": _json(reserved[thing]),
            "left": _json(left[thing]),
        }
        for thing, limit in use.budget.limits.items()
    }
    return {"on_breach": use.budget.on_breach, "warned": sorted(use.warned), **things}


def line(use: Use, now: datetime | None = None) -> str:
    """`2,000 of 10,000 tokens, cost 0.5 of 1 left`; empty without a budget."""
    if use.budget is None:
        return ""
    left, extended = use.left(now=now), dict(_pairs(use.extended))
    parts = []
    for thing, limit in use.budget.limits.items():
        total, has = limit + extended[thing], left[thing]
        if thing == "cost":
            parts.append(f"cost {text_of_cost(has)} of {text_of_cost(total)}")
        elif thing == "wall_time":
            parts.append(f"{span(has)} of {span(total)}")
        else:
            parts.append(f"{has:,} of {total:,} {NOUNS[thing]}")
    return ", ".join(parts)


def _pairs(amounts: Amounts) -> Iterable[tuple[str, Any]]:
    return zip(THINGS, amounts.values(), strict=True)


def _json(value: Any) -> Any:
    return text_of_cost(value) if isinstance(value, Decimal) else value


def _whole(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise InvalidBudget(f"{name} of a budget is a whole number from 0 to 10^15, got {value!r:.60}")
    return value or None


def _cost(value: Any) -> Decimal | None:
    if value is None:
        return None
    cost = None
    if isinstance(value, Decimal | int | float | str) and not isinstance(value, bool):
        try:
            cost = cost_of(value)
        except ValueError:
            cost = None
    if cost is None or not 0 <= cost <= MOST_COST or _digits(cost) > MOST_DIGITS:
        raise InvalidBudget(
            f"cost of a budget is a number from 0 to 10^15 with at most {MOST_DIGITS} digits after the point, "
            f"got {value!r:.60}",
            hint='for example Decimal("1.50")',
        )
    return abs(cost) or None


def _digits(cost: Decimal) -> int:
    exponent = cost.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else MOST_DIGITS + 1


def _time(value: Any) -> float | None:
    if value is None:
        return None
    try:
        return seconds(value) or None
    except (ValueError, TypeError) as error:
        raise InvalidBudget(f"wall_time of a budget: {error}") from None
