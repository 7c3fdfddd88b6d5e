"""A conversation that fits a budget of tokens: pairs stay pairs, and what was cut is reported."""

from typing import Any

import pytest

from perdure.model.conversation import estimated_tokens, fitted
from perdure.model.errors import InvalidInput

SYSTEM = {"role": "system", "content": "be short"}


def said(role: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": None, **more}


def calls(*ids: str) -> dict[str, Any]:
    return said("assistant", tool_calls=[{"id": id, "function": {"name": "f"}} for id in ids])


def result(id: str) -> dict[str, Any]:
    return said("tool", tool_call_id=id)


def ten(message: dict[str, Any]) -> int:
    return 10


def test_all_that_fits_stays() -> None:
    talk = [SYSTEM, said("user"), calls("a", "b"), result("a"), result("b"), said("assistant")]
    fit = fitted(talk, 60, ten)
    assert (fit.messages, fit.tokens, fit.cut) == (talk, 60, ())


@pytest.mark.parametrize("budget", range(20, 70, 5))
def test_a_call_and_its_results_stay_or_go_together(budget: int) -> None:
    talk = [SYSTEM, said("user"), calls("a", "b"), result("a"), said("user", n=2), result("b"), said("assistant")]
    fit = fitted(talk, budget, ten)
    kept = [talk.index(message) for message in fit.messages]
    assert len({2, 3, 5} & set(kept)) in (0, 3)
    assert kept[0] == 0
    assert kept[-1] == 6
    assert fit.tokens == 10 * len(kept) <= budget
    assert sorted(kept + [cut.position for cut in fit.cut]) == list(range(7))
    assert fit.cut_tokens == 70 - fit.tokens
    assert {cut.why for cut in fit.cut} == {"budget"}


def test_results_without_calls_and_calls_without_results_go() -> None:
    talk = [result("x"), calls("a", "b"), result("a"), said("user"), calls("c")]
    fit = fitted(talk, 1000, ten)
    assert fit.messages == talk[3:]
    assert [(cut.position, cut.role, cut.why) for cut in fit.cut] == [
        (0, "tool", "orphan"),
        (1, "assistant", "unanswered"),
        (2, "tool", "unanswered"),
    ]


def test_calls_as_anthropic_writes_them() -> None:
    use = said("assistant") | {"content": [{"type": "text", "text": "hm"}, {"type": "tool_use", "id": "a"}]}
    answer = said("user") | {"content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]}
    fit = fitted([use, answer, said("user")], 20, ten)
    assert [cut.position for cut in fit.cut] == [0, 1]
    assert not fitted([use, answer, said("user")], 30, ten).cut


def test_what_cannot_fit_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="20 tokens"):
        fitted([SYSTEM, said("user")], 15, ten)
    with pytest.raises(InvalidInput, match="10 tokens"):
        fitted([SYSTEM], 5, ten)
    assert fitted([], 5, ten).messages == []


def test_tokens_are_estimated_for_both_kinds_of_scripts() -> None:
    assert estimated_tokens({"role": "user", "content": "word " * 100}) == pytest.approx(130, abs=10)
    assert estimated_tokens({"role": "user", "content": "日志" * 50}) == pytest.approx(112, abs=6)
