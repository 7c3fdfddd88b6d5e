"""The figures and faults of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Report:
    """The figures of a run so far.

    faults: everything that is wrong, one line each. notes: what was left out, and why.
    done: what was done to workers, connections and jobs, by name. jobs: how many ended in each status. found: what the logs
    hold: attempts, attempts cut off, events, steps, tool calls, approvals decided, ...
    """

    seed: int
    tenant: str
    done: Counter[str] = field(default_factory=Counter)
    jobs: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    phase: str = "starting"
    """`faults` while they are injected, then `finishing` while the last jobs end, then `proof`."""
    enqueued: int = 0
    open: int = 0
    checked: int = 0
    injected_for: float = 0.0
    """Seconds in which faults were injected."""
    took: float = 0.0
    """Seconds in all."""
    place: str | None = None
    """The directory of the effects and the workers' logs, if they were kept."""

    @property
    def kills(self) -> int:
        """SIGKILLs."""
        return self.done["kills"]

    @property
    def kill_rate(self) -> float:
        """SIGKILLs per second while faults were injected."""
        return self.kills / self.injected_for if self.injected_for else 0.0
