"""Errors of recorded steps and tool calls."""

from __future__ import annotations

from perdure.model.errors.base import HandlerError, NotFound


class StepNotFound(NotFound):
    """The job has recorded no step of this name or number."""

    code = "step-not-found"


class StepChanged(HandlerError):
    """A recorded step was called with other arguments than when it was recorded."""

    code = "step-changed"


class UnknownOutcome(HandlerError):
    """A tool call was cut off, so whether its side effect happened is unknown, and its policy is to fail."""

    code = "unknown-outcome"
