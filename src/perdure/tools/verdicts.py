"""What the text and the HTTP status of a failure mean: rules that all tools share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from perdure.model.tooling import RunClass


class Verdict(NamedTuple):
    """The class of a run, a word that says more, the words of the CLI, and in how many seconds it may be called again."""

    outcome: RunClass
    detail: str
    message: str = ""
    retry_after: float | None = None


def _rule(outcome: RunClass, detail: str, *alternatives: str, exact: bool = False) -> tuple[re.Pattern[str], Verdict]:
    return re.compile("|".join(alternatives), re.NOFLAG if exact else re.IGNORECASE), Verdict(outcome, detail)


# The first that fits counts. Billing and credentials come before rate limits: some of their texts speak of quotas.
_RULES = (
    _rule(
        RunClass.RATE_LIMITED,
        "plan_window",
        "usage limit", "session limit", "weekly limit", "hit your .{0,20}limit", "daily quota",
    ),
    _rule(
        RunClass.FATAL,
        "billing",
        r"Quota exceeded\. Check your plan", "insufficient_quota", "Credit balance is too low",
    ),
    _rule(
        RunClass.AUTH,
        "credentials",
        "API_KEY_INVALID", "API key not valid", "Incorrect API key", "Invalid API key", "Not logged in",
        "Missing environment variable", "Please run /login", "UNAUTHENTICATED", "PERMISSION_DENIED", "authentication_failed",
        "Failed to authenticate", "must specify the GEMINI_API_KEY", "Invalid auth method", "set an Auth method",
    ),
    _rule(
        RunClass.RATE_LIMITED,
        "api",
        "rate limit", "Too Many Requests", "RESOURCE_EXHAUSTED", "Suggested retry after", "exceeded your current quota",
        "temporarily limiting requests",
    ),
    _rule(
        RunClass.FATAL,
        "too_long",
        r"ran out of \wo{2}m", "[Pp]rompt is too long", "exceeds the maximum number of tokens", "Input exceeds the maximum",
        exact=True,
    ),
    _rule(
        RunClass.FATAL,
        "model",
        "does not exist or you (do not|may not) have access", "is not found for API", "issue with the selected model",
        exact=True,
    ),
    _rule(RunClass.FATAL, "max_output", "max_output_tokens", "output token maximum", exact=True),
    _rule(RunClass.FATAL, "refusal", "content_filter", "Usage Policy", exact=True),
    _rule(
        RunClass.RETRYABLE,
        "server",
        "at capacity", "high demand", "[Oo]verloaded", "INTERNAL", "UNAVAILABLE", "server-side issue",
        exact=True,
    ),
)  # fmt: skip
_NETWORK = re.compile(
    r"stream disconnected|error sending request|waiting for network|ECONNRESET|ECONNREFUSED|ConnectionRefused|FailedToOpenSocket"
    r"|Unable to connect to API|Connection to the API was lost|fetch failed|\bterminated\b|network error|idle timeout"
    r"|Request timed out|Incomplete JSON segment|Failed to parse JSON|Unterminated string in JSON|in JSON at position"
    r"|Stream ended without|stream closed before|without a finish reason|empty response",
    re.IGNORECASE,
)
_STATUS = re.compile(r"(?:unexpected status|last status:|API Error:|\"code\":|status:)\s*(\d{3})\b")
_DELAY = re.compile(
    r"(?:try again in|retry after|retry in)\s+((?:\d+(?:\.\d+)?\s*[a-z]+[,\s]*(?:and\s+)?)+)", re.IGNORECASE
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|sec\w*|m|min\w*|h|hours?|d|days?)\b", re.IGNORECASE)
_MOMENT = re.compile(
    r"try again at\s+(?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th)?,? (\d{4}),? )?(\d{1,2}):(\d{2})\s*([AP]M)?",
    re.IGNORECASE,
)
_UNITS = {"ms": 0.001, "mi": 60.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
LONGEST_DELAY = 31 * 86400.0


def by_text(text: str, now: datetime | None = None) -> Verdict | None:
    """What a failure with this text is; None where no rule fits. `now` (UTC) is what clock times in it are compared with."""
    message = one_line(text)
    for pattern, verdict in _RULES:
        if pattern.search(text):
            delay = delay_in(text, now) if verdict.outcome is RunClass.RATE_LIMITED else None
            return verdict._replace(message=message, retry_after=delay)
    found = _STATUS.search(text)
    if found and (of_status := by_status(int(found[1]), text)):
        return of_status
    if _NETWORK.search(text):
        return Verdict(RunClass.RETRYABLE, "network", message)
    return None


def by_status(status: int, text: str = "") -> Verdict | None:
    """What an HTTP status means; None for one that is no failure."""
    message = one_line(text)
    match status:
        case 401 | 403:
            return Verdict(RunClass.AUTH, str(status), message)
        case 402:
            return Verdict(RunClass.FATAL, "billing", message)
        case 429:
            return Verdict(RunClass.RATE_LIMITED, "429", message, delay_in(text))
        case 408:
            return Verdict(RunClass.RETRYABLE, "408", message)
        case _ if 500 <= status <= 599:
            return Verdict(RunClass.RETRYABLE, str(status), message)
        case _ if 400 <= status <= 499:
            return Verdict(RunClass.FATAL, str(status), message)
    return None


def delay_in(text: str, now: datetime | None = None) -> float | None:
    """The seconds that a text says to wait: `try again in 2.5s`, `Suggested retry after 30s`, `try again at 1:51 PM` (UTC)."""
    if found := _DELAY.search(text):
        parts = _PART.findall(found[1])
        total = sum(float(n) * _UNITS.get(unit[:2].lower(), _UNITS[unit[0].lower()]) for n, unit in parts)
        return min(total, LONGEST_DELAY) if parts else None
    if found := _MOMENT.search(text):
        return _until(found, now or datetime.now(UTC))
    return None


def until(moment: float, now: datetime | None = None) -> float:
    """The seconds until an epoch time: 0 if it is over."""
    return min(max(0.0, moment - (now or datetime.now(UTC)).timestamp()), LONGEST_DELAY)


def _until(found: re.Match[str], now: datetime) -> float | None:
    month, day, year, hour, minute, half = found.groups()
    hours = int(hour) % 12 + (12 if half.upper() == "PM" else 0) if half else int(hour)
    try:
        moment = now.replace(hour=hours, minute=int(minute), second=0, microsecond=0)
        if month:
            moment = moment.replace(year=int(year), month=_MONTHS.index(month.lower()) + 1, day=int(day))
        elif moment < now:
            moment += timedelta(days=1)
    except ValueError:
        return None
    return min(max(0.0, (moment - now).total_seconds()), LONGEST_DELAY)


def one_line(text: str, most: int = 500) -> str:
    """The first line that says anything, cut."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= most else line[: most - 1] + "…"


def first(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """The first that is one."""
    return next((verdict for verdict in verdicts if verdict is not None), None)
