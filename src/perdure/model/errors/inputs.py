"""Errors of arguments: payloads, priorities, delays, ids."""

from __future__ import annotations

from perdure.model.errors.base import InvalidInput, NotFound


class NotJson(InvalidInput):
    """A payload, result, checkpoint or event cannot be written as JSON."""

    code = "not-json"


class TooLarge(InvalidInput):
    """A payload, result, checkpoint or event is more than 1 MiB of JSON."""

    code = "too-large"


class InvalidPriority(InvalidInput):
    """A priority is a whole number from 1 to 9; 9 is the most urgent."""

    code = "invalid-priority"


class InvalidBudget(InvalidInput):
    """A budget has a number that is negative or no number, or an unknown policy."""

    code = "invalid-budget"


class InvalidExport(InvalidInput):
    """A file is no complete export of jobs, or was redacted."""

    code = "invalid-export"


class NegativeDelay(InvalidInput):
    """A delay cannot be negative."""

    code = "negative-delay"


class AmbiguousId(NotFound):
    """Several ids end in these digits, fewer than 6 digits were given, or the named job has several open approvals."""

    code = "ambiguous-id"
