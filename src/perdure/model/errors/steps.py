"""Errors of recorded steps and tool calls."""

from __future__ import annotations

from perdure.model.errors.base import HandlerError, NotFound


class StepNotFound(NotFound):
    """The job has recorded no step of this name or number."""

    code = "step-not-found"


class StepChanged(HandlerError):
    """A recorded step was called with arguments other than the recorded ones."""

    code = "step-changed"


class ReplayDiverged(HandlerError):
    """A recorded job does not do again what the record says. step: the key of the first step that differs, if it is one."""

    code = "replay-diverged"

    def __init__(self, message: str, *, step: str | None) -> None:
        super().__init__(message)
        self.step = step


class RecordedFailure(HandlerError):
    """A step or tool failed in an earlier attempt, the handler went on from that, and the class of the failure is not known in
    this process."""

    code = "recorded-failure"

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(
            f"an earlier attempt raised {type_name}: {text}" if text else f"an earlier attempt raised {type_name}",
            hint=f"import the module of {type_name} where the handler is defined",
        )
        self.type_name = type_name
        self.text = text


class UnknownOutcome(HandlerError):
    """A tool call was cut off, it is unknown whether its side effect happened, and the tool is set to fail then."""

    code = "unknown-outcome"
