"""How long an attempt may run: up to its handler's timeout or the job's deadline, whichever comes first."""

from __future__ import annotations

from perdure.model.timing import Clock
from perdure.runtime.outcomes import AttemptTimeout

END_MARGIN = 5.0
"""Seconds after limit and grace until the database ends an attempt that its worker has not ended."""


class TimeLimit:
    """A limit of `length` seconds from now. error: what the attempt ends with when it is reached."""

    def __init__(self, clock: Clock, length: float, error: AttemptTimeout) -> None:
        self.length = length
        self.error = error
        self.scope = clock.timeout(length)
        """Cancels what runs inside it when the limit is reached."""
        self.ends_at = clock.monotonic() + length
        """By the store's clock."""

    @property
    def reached(self) -> bool:
        """True once the time is up."""
        return self.scope.expired()


def limit_of(clock: Clock, timeout: float | None, left: float | None) -> TimeLimit:
    """The limit of an attempt that begins now. timeout: seconds, of its handler. left: seconds until its job's deadline. One of
    them is not None."""
    if left is not None and (timeout is None or left <= timeout):
        return TimeLimit(clock, max(0.0, left), AttemptTimeout("the deadline passed", final=True))
    assert timeout is not None
    return TimeLimit(clock, timeout, AttemptTimeout(f"the attempt ran longer than {timeout:g} s", final=False))
