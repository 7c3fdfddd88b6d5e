"""When a job counts as stuck, what is done about it, and what its log says was done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

from perdure.model.errors import InvalidInput
from perdure.model.events import Event
from perdure.model.timing import Duration, seconds

StuckAction: TypeAlias = Literal["nudge", "retry", "fail"]
"""What is done about a stuck job: first an event that its handler may look at, then a new attempt, then the end."""

SET = "stuck_set"
NOTICED = "stuck_noticed"
MOST = 100
SAYS = {
    "nudge": "It was nudged",
    "retry": "An attempt was begun because it was stuck",
    "fail": "It is about to fail because it was stuck",
}


@dataclass(frozen=True, slots=True)
class Stuck:
    """When a job counts as stuck: after so long without progress while it runs, however long it has run before.

    Progress is what it writes: a step, a tool, an event, usage, a message, a checkpoint, a figure of `ctx.progress`, a line of
    output of its coding CLI. While it waits, sleeps or is parked it is not stuck.

    after: seconds or text such as "10m". repair_attempts: how often a new attempt begins because of it, 0 to 100; after that the
    job is FAILED. repeats: it is also stuck when it has called a tool so many times in a row with the same arguments and the same
    outcome, from 2; None: that does not count. Raises InvalidInput.
    """

    after: Duration = "10m"
    repair_attempts: int = 3
    repeats: int | None = None

    def __post_init__(self) -> None:
        try:
            length = seconds(self.after)
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"after of Stuck: {error}") from None
        if length <= 0:
            raise InvalidInput(
                f"after of Stuck is a duration above 0, got {self.after!r:.60}", hint='for example "10m"'
            )
        object.__setattr__(self, "after", length)
        for name, least in (("repair_attempts", 0), ("repeats", 2)):
            value = getattr(self, name)
            if value is None and name == "repeats":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
                raise InvalidInput(f"{name} of Stuck is a whole number from {least} to {MOST}, got {value!r:.60}")

    @property
    def seconds(self) -> float:
        """`after`, in seconds."""
        return seconds(self.after)

    def as_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {"after": self.after, "repair_attempts": self.repair_attempts, "repeats": self.repeats}


def stuck_of(stored: Mapping[str, Any]) -> Stuck:
    """As it was stored. What a later version added is ignored. Raises InvalidInput."""
    return Stuck(**{name: stored[name] for name in ("after", "repair_attempts", "repeats") if name in stored})


@dataclass(frozen=True, slots=True)
class StuckJob:
    """A job that failed because it was stuck, for the function that is notified. why: what was noticed. repairs: how many
    attempts were begun because of that."""

    id: UUID
    kind: str
    why: str
    repairs: int


@dataclass(slots=True)
class StuckRecord:
    """What the log of a job says of it."""

    given: Stuck | None = None
    """What its caller said."""
    nudges: int = 0
    repairs: int = 0
    failed: str | None = None
    """Why it is to fail: it was stuck after the last attempt that was allowed."""

    def read(self, event: Event) -> None:
        """Count the next event of the job's log."""
        payload = event.payload
        if event.type == SET:
            self.given = stuck_of(payload["stuck"])
        elif event.type == NOTICED:
            match payload["action"]:
                case "nudge":
                    self.nudges += 1
                case "retry":
                    self.repairs += 1
                case _:
                    self.failed = payload["why"]
