"""Which of the jobs that wait for its code a worker wakes in a round."""

from itertools import pairwise
from uuid import UUID

from perdure.runtime.wake_turns import MOST, WakeTurns

A, B = UUID(int=1), UUID(int=2)


def test_a_job_that_was_woken_in_vain_is_woken_ever_more_seldom() -> None:
    turns = WakeTurns()
    rounds = [n for n in range(1, 300) if turns.pick([A])]
    assert rounds[:5] == [1, 3, 7, 15, 31]
    assert {b - a for a, b in pairwise(rounds[4:])} == {MOST}


def test_others_are_woken_at_once_and_what_is_over_is_forgotten() -> None:
    turns = WakeTurns()
    assert turns.pick([A]) == [A]
    assert turns.pick([A, B]) == [B]
    for _ in range(4):
        assert turns.pick([]) == []
    assert turns.remembered == 0
    assert turns.pick([A]) == [A]
