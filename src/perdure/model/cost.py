"""Cost: an exact decimal number. Sums of floats would differ by the order in which they are added up."""

from __future__ import annotations

from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

ZERO = Decimal(0)
MOST_COST = Decimal(10**15)
MOST_DIGITS = 30
"""Of one cost, after the decimal point."""

_EXACT = Context(prec=200, traps=[Inexact, InvalidOperation])


def add_cost(one: Decimal, other: Decimal) -> Decimal:
    """The exact sum."""
    return _EXACT.add(one, other)


def cost_of(value: Any) -> Decimal:
    """A cost as it was stored: a number, its text, or None for 0. Raises ValueError."""
    if value is None:
        return ZERO
    try:
        cost = value if isinstance(value, Decimal) else Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"no number: {value!r:.60}") from None
    if not cost.is_finite():
        raise ValueError(f"no finite number: {value!r:.60}")
    return cost


def text_of_cost(cost: Decimal) -> str:
    """`0.0184`: without an exponent and without zeros at the end."""
    text = f"{cost:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
