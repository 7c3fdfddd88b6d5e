"""Errors of recorded steps and tool calls."""

from __future__ import annotations

from perdure.model.errors.base import HandlerError, NotFound


class StepNotFound(NotFound):
    """The job has recorded no step of this name or number."""

    code = "step-not-found"


class StepChanged(HandlerError):
    """A recorded step was called with arguments other than the recorded ones."""

    code = "step-changed"


class UnknownOutcome(HandlerError):
    """A tool call was cut off, it is unknown whether its side effect happened, and the tool is set to fail then."""

    code = "unknown-outcome"
