"""Values as people read and type them."""

from datetime import UTC, datetime, timedelta

import pytest

from perdure.cli.format import TimeFormat, Times, clean_text, duration, moment, one_line, safe_json, short, span
from perdure.cli.usage_error import Usage

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0123, "12ms"),
        (0.999, "999ms"),
        (1, "1s"),
        (9.94, "9.9s"),
        (59.9, "59s"),
        (60, "1m"),
        (242, "4m02s"),
        (3599, "59m"),
        (3600, "1h"),
        (3660, "1h01m"),
        (36000, "10h"),
        (172800, "2d"),
    ],
)
def test_span(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("away", "words"),
    [(-180, "3m ago"), (300, "in 5m"), (0.4, "now"), (-0.4, "now"), (-3.7, "3s ago"), (86400, "in 24h")],
)
def test_relative_times(away: float, words: str) -> None:
    times = Times(TimeFormat.RELATIVE, NOW)
    assert times.show(NOW + timedelta(seconds=away)) == words
    assert times.age(NOW + timedelta(seconds=away)) == words.removesuffix(" ago")


def test_absolute_times() -> None:
    assert Times(TimeFormat.ISO, NOW).show(NOW) == "2026-11-20T12:00:00.000Z"
    assert Times(TimeFormat.EPOCH, NOW).show(NOW) == "1795176000.000"
    assert Times(TimeFormat.ISO, NOW).show(None) == ""


def test_text_that_would_drive_the_terminal_is_spelled_out() -> None:
    assert clean_text("a\x1b[31mb\x9bc\u202ed\te\nf\r\ng\ud800") == "a\\x1b[31mb\\x9bc\\u202ed\te\nf\ng\\ud800"
    assert one_line("  a\n b\t\x07") == "a b \\x07"
    assert safe_json('"\x7f\u202e\u00e4\u4e2d"') == '"\\u007f\\u202e\u00e4\u4e2d"'


def test_short_ids() -> None:
    assert short("01a1f9ec-2ec8-7000-b9d7-0a37586d88ba") == "…586d88ba"


class TestMoments:
    """What may be typed where a time is wanted."""

    @pytest.mark.parametrize(("text", "away"), [("90m", 5400), ("+2h", 7200), ("30", 30), ("1h30m", 5400)])
    def test_durations_are_from_now(self, text: str, away: float) -> None:
        now = datetime.now(UTC)
        assert abs(moment(text, "--run-at", past=False) - now - timedelta(seconds=away)) < timedelta(seconds=5)
        assert abs(now - moment(text, "--since", past=True) - timedelta(seconds=away)) < timedelta(seconds=5)

    def test_with_an_offset(self) -> None:
        assert moment("2026-12-24T18:00+02:00", "--run-at", past=False) == datetime(2026, 12, 24, 16, tzinfo=UTC)
        assert moment("2026-12-24 18:00Z", "--run-at", past=False) == datetime(2026, 12, 24, 18, tzinfo=UTC)

    def test_without_one_it_is_local(self) -> None:
        assert moment("2026-12-24T18:00", "--run-at", past=False) == datetime(2026, 12, 24, 18).astimezone(UTC)
        assert moment("2026-12-24", "--run-at", past=False) == datetime(2026, 12, 24).astimezone(UTC)

    def test_by_the_clock(self) -> None:
        today = datetime.now().astimezone()
        nine = moment("tomorrow 09:00", "--run-at", past=False).astimezone()
        assert (nine.date(), nine.hour, nine.minute) == ((today + timedelta(days=1)).date(), 9, 0)
        assert moment("18:30", "--run-at", past=False) == moment("today 18:30:00", "--run-at", past=False)

    def test_by_the_day(self) -> None:
        today = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
        assert moment("yesterday", "--since", past=True).astimezone().date() == (today - timedelta(days=1)).date()
        assert moment("yesterday", "--since", past=True).astimezone().hour == 0
        assert moment("Today", "--since", past=True) == today
        assert moment("yesterday 18:00", "--since", past=True).astimezone().hour == 18

    @pytest.mark.parametrize("text", ["soon", "25:00", "2026-13-01", "-5m", "", "99999-01-01"])
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(Usage, match="--run-at"):
            moment(text, "--run-at", past=False)


def test_durations() -> None:
    assert duration("1h30m", "--wait") == 5400
    with pytest.raises(Usage, match="--wait: 'soon' is not a duration"):
        duration("soon", "--wait")
