"""Durations as people write them, and the bounds of every backoff."""

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.timing import MAX_DURATION, Backoff, seconds


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (0, 0.0),
        (1.5, 1.5),
        ("90", 90.0),
        ("90s", 90.0),
        ("15m", 900.0),
        ("2h", 7200.0),
        ("3d", 259_200.0),
        ("1w", 604_800.0),
        ("250ms", 0.25),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        (" 1.5H ", 5400.0),
        (timedelta(minutes=2, milliseconds=5), 120.005),
    ],
)
def test_a_duration_is_seconds_a_timedelta_or_text(written: float | str | timedelta, meant: float) -> None:
    assert seconds(written) == pytest.approx(meant)


@pytest.mark.parametrize("written", ["", "soon", "1y", "h", "1h and a bit", "1h-30m", "0x10"])
def test_text_that_is_no_duration_is_refused_with_an_example(written: str) -> None:
    with pytest.raises(ValueError, match="1h30m"):
        seconds(written)


@pytest.mark.parametrize(
    "written",
    [
        -1,
        -0.001,
        "-5",
        float("nan"),
        float("inf"),
        "nan",
        "inf",
        "1e300",
        MAX_DURATION * 2,
        timedelta(-1),
        True,
        10**400,
        [1],
        {},
        None,
    ],
)
def test_a_duration_that_makes_no_sense_is_refused(written: float | str | timedelta) -> None:
    with pytest.raises(ValueError, match="duration"):
        seconds(written)


bases = st.floats(min_value=0, max_value=1000)
retries = st.integers(min_value=0, max_value=5000)


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    base = draw(bases)
    return Backoff(
        base=base,
        cap=draw(st.floats(min_value=base, max_value=100_000)),
        multiplier=draw(st.floats(min_value=1, max_value=10)),
        jitter=draw(st.floats(min_value=0, max_value=1)),
    )


@given(backoffs(), retries, st.integers())
def test_a_delay_is_between_the_unjittered_part_and_the_ceiling(backoff: Backoff, retry: int, seed: int) -> None:
    ceiling = backoff.ceiling(retry)
    assert 0 <= ceiling <= seconds(backoff.cap)
    delay = backoff.delay(retry, random.Random(seed))
    slack = 1e-9 * ceiling
    assert ceiling * (1 - backoff.jitter) - slack <= delay <= ceiling + slack


@given(backoffs(), retries)
def test_the_ceiling_never_falls_and_starts_at_the_base(backoff: Backoff, retry: int) -> None:
    assert backoff.ceiling(0) == seconds(backoff.base)
    assert backoff.ceiling(retry) <= backoff.ceiling(retry + 1)


def test_the_default_doubles_from_a_second_to_five_minutes_with_full_jitter() -> None:
    backoff = Backoff()
    assert [backoff.ceiling(n) for n in range(11)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    delays = [backoff.delay(5, random.Random(seed)) for seed in range(2000)]
    assert 0 <= min(delays) < 1
    assert 31 < max(delays) <= 32
    assert 15 < sum(delays) / len(delays) < 17


def test_without_jitter_the_delay_is_exact() -> None:
    assert Backoff(base="30s", cap="5m", jitter=0).delay(2) == 120


def test_the_same_generator_gives_the_same_delay() -> None:
    assert Backoff().delay(3, random.Random(7)) == Backoff().delay(3, random.Random(7))


@pytest.mark.parametrize(
    "figures",
    [
        {"base": 10, "cap": 5},
        {"base": -1},
        {"base": "soon"},
        {"multiplier": 0.5},
        {"multiplier": float("nan")},
        {"jitter": 1.5},
        {"jitter": -0.1},
        {"jitter": float("nan")},
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused_when_it_is_written(figures: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"backoff|duration"):
        Backoff(**figures)
