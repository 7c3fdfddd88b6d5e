"""What differs between two JSON values."""

from typing import Any

import pytest

from perdure.model.comparison import Change, changes


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        (1, 1, []),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, []),
        (1, 2, [("", "changed", 1, 2)]),
        (None, {}, [("", "changed", None, {})]),
        (1, True, [("", "changed", 1, True)]),
        ([], {}, [("", "changed", [], {})]),
        (
            {"a": 1, "b": 2},
            {"b": 3, "c": 4},
            [("a", "only_a", 1, None), ("b", "changed", 2, 3), ("c", "only_b", None, 4)],
        ),
        ({"a": None}, {}, [("a", "only_a", None, None)]),
        ([1, 2, 3], [1, 4], [("1", "changed", 2, 4), ("2", "only_a", 3, None)]),
        ({"x": [{"y": "a"}]}, {"x": [{"y": "b"}, 5]}, [("x.0.y", "changed", "a", "b"), ("x.1", "only_b", None, 5)]),
    ],
)
def test_changes(a: Any, b: Any, found: list[tuple[Any, ...]]) -> None:
    assert list(changes(a, b)) == [Change(*one) for one in found]


def test_the_other_way_round() -> None:
    a, b = {"a": 1, "b": [1, 2], "d": "x"}, {"b": [3], "c": None, "d": "x"}
    swapped = {"only_a": "only_b", "only_b": "only_a", "changed": "changed"}
    there, back = list(changes(a, b)), list(changes(b, a))
    assert {(c.path, c.change, c.a, c.b) for c in there} == {(c.path, swapped[c.change], c.b, c.a) for c in back}
    assert len(there) == 4
