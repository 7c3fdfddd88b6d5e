"""What a run did and found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Report:
    """The figures of a run, growing while it goes on.

    faults: everything that must not be, one line each; a run without any is a proof. notes: what was left out, and why.
    done: what was done to workers, connections and jobs, by name. jobs: how many ended in each status. found: what the logs
    hold: attempts, attempts cut off, events, steps, tool calls, approvals decided.
    """

    seed: int
    tenant: str
    done: Counter[str] = field(default_factory=Counter)
    jobs: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    phase: str = "starting"
    """`harm`, then `calm` while the last jobs end, then `proof`."""
    enqueued: int = 0
    open: int = 0
    checked: int = 0
    raged: float = 0.0
    """Seconds in which harm was done."""
    took: float = 0.0
    """Seconds in all."""
    place: str | None = None
    """Where the witness and the workers' logs are, if they were kept."""

    @property
    def kills(self) -> int:
        """SIGKILLs."""
        return self.done["kills"]

    @property
    def kill_rate(self) -> float:
        """SIGKILLs per second while harm was done."""
        return self.kills / self.raged if self.raged else 0.0
