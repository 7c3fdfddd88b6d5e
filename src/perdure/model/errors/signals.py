"""Errors of signals."""

from __future__ import annotations

from perdure.model.errors.base import Conflict


class SignalConflict(Conflict):
    """The id of a signal was used before for the same job or agent, with another key or payload."""

    code = "signal-conflict"


class SignalTooLate(Conflict):
    """The job has ended, so it takes no more signals."""

    code = "signal-too-late"
