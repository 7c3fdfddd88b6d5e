"""What a question about a call that was cut off shows of its arguments."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from perdure.model.shown import HIDDEN
from perdure.runtime.shown_arguments import MOST_BYTES, shown_arguments


@dataclass
class Order:
    """An argument."""

    item: str
    card_number: str


def charge(order: Any = None, amount: Any = 0, *, token: Any = None, **more: Any) -> None:
    """A tool."""


def test_by_the_names_of_the_parameters() -> None:
    shown = shown_arguments(charge, (Order("tea", "4111"), 12.5), {"token": "abc"})
    assert shown == {"order": {"item": "tea", "card_number": HIDDEN}, "amount": 12.5, "token": HIDDEN}
    assert shown_arguments(print, ("a",), {}) == {"args": ["a"]}


@pytest.mark.parametrize(
    "value",
    [
        {"password": "hunter2"},
        {"headers": [{"Authorization": "hunter2"}]},
        {"API-Key": "hunter2", "api_key": "hunter2", "stripeApiKey": "hunter2"},
        "Bearer hunter2hunter2",
        "postgresql://ann:hunter2@host/x",
        "sk-hunter2hunter2",
        "-----BEGIN RSA PRIVATE KEY-----hunter2",
    ],
)
def test_what_looks_like_a_secret_is_hidden(value: Any) -> None:
    assert "hunter2" not in json.dumps(shown_arguments(charge, (value,), {}))


@pytest.mark.parametrize("value", ["a monkey", {"keyboard": "qwerty", "author": "ann", "tokens": 12}, [1, None, True]])
def test_what_does_not_is_shown(value: Any) -> None:
    assert shown_arguments(charge, (value,), {})["order"] == value


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**6,
        ["y" * 300] * 1000,
        {str(n): "z" * 300 for n in range(1000)},
        [[[[[[["deep"]]]]]]],
        object(),
        float("nan"),
    ],
)
def test_it_is_bounded_and_always_json(value: Any) -> None:
    text = json.dumps(shown_arguments(charge, (value,), {"a": value, "b": value}), allow_nan=False)
    assert len(text) <= MOST_BYTES
