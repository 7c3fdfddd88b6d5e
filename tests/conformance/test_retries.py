"""Which failures of a call are tried again, how often and for how long."""

import asyncio

import pytest

from perdure.store.group_commit.retry import CLASHES, Failure, Retries


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, none of them real, each at its longest."""
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr("perdure.store.group_commit.retry.asyncio.sleep", sleep)
    monkeypatch.setattr("perdure.store.group_commit.retry.random.uniform", lambda _, most: most)
    return made


async def test_what_is_wrong_by_itself_is_not_tried_again(pauses: list[float]) -> None:
    assert not await Retries().again(Failure.OTHER)
    assert pauses == []


async def test_a_call_that_loses_against_others_is_tried_again_a_few_times(pauses: list[float]) -> None:
    retries = Retries()
    answers = [await retries.again(Failure.CLASH) for _ in range(CLASHES)]
    assert answers == [True] * (CLASHES - 1) + [False]
    assert pauses == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.2]


async def test_a_lock_is_waited_for_as_often_as_is_said(pauses: list[float]) -> None:
    assert not await Retries().again(Failure.BLOCKED)
    retries = Retries(blocks=2)
    assert [await retries.again(Failure.BLOCKED) for _ in range(3)] == [True, True, False]
    assert pauses == [], "waiting for the lock was the pause"


@pytest.mark.parametrize("failure", [Failure.LOST, Failure.AWAY])
async def test_a_connection_is_waited_for_until_the_time_is_up(pauses: list[float], failure: Failure) -> None:
    retries = Retries(3600)
    assert [await retries.again(failure) for _ in range(8)] == [True] * 8
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    assert not await Retries(0).again(failure)


async def test_the_first_loss_is_tried_again_although_it_took_all_the_time(pauses: list[float]) -> None:
    retries = Retries(0, even_late=(Failure.LOST,))
    assert not await retries.again(Failure.AWAY)
    assert [await retries.again(Failure.LOST) for _ in range(2)] == [True, False]
    assert pauses == [0.02]


async def test_pauses_differ_between_callers() -> None:
    """Those that lost together do not come back together."""
    loop = asyncio.get_running_loop()
    took = []
    for _ in range(4):
        retries, began = Retries(pauses=(0.05, 0.05)), loop.time()
        assert await retries.again(Failure.LOST)
        took.append(loop.time() - began)
    assert all(seconds >= 0.02 for seconds in took)
    assert len({round(seconds, 4) for seconds in took}) > 1
