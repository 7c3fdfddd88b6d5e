"""What happens, as far as a seed decides it: which jobs there are, how each worker fares, and what else goes wrong.

Each job, each place of a worker and the trouble have a stream of their own, so that no decision depends on who was faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Literal, TypeVar

from perdure.chaos.jobs import STUBBORN, Doom, Errand, Op, Says
from perdure.model.approvals import OnDeny, OnExpiry
from perdure.runtime.client.enqueue import EnqueueOptions, Request
from perdure.runtime.context.options import OnUnknown

LEASE = 1.0
"""Seconds: the shortest there is, so that a worker's death matters soon."""
HOUR = 3600.0
SKEWS = (0.0, HOUR, 0.0, -HOUR)
"""By how much the clocks of the workers in each place are wrong."""


End = Literal["kill", "stop", "freeze", "term", "term2"]
ENDS: dict[End, int] = {"kill": 89, "stop": 5, "freeze": 1, "term": 3, "term2": 2}
Harm = Literal["cut", "swallow", "end", "cancel", "force", "hurry"]
HARMS: dict[Harm, int] = {"cut": 4, "swallow": 9, "end": 3, "cancel": 2, "force": 1, "hurry": 2}
SAYS: dict[Says, int] = {"yes": 6, "edit": 2, "no": 1, "nothing": 1}
ON_UNKNOWN: dict[OnUnknown, int] = {"ask": 5, "retry": 5, "fail": 1}
ON_DENY: dict[OnDeny, int] = {"fail": 1, "resume": 1}
ON_EXPIRY: dict[OnExpiry, int] = {"fail": 1, "deny": 1, "continue": 1}
"""What may be, and how often."""

T = TypeVar("T")


@dataclass(frozen=True)
class Fate:
    """How one worker fares.

    life: seconds from when it is ready (from its fork, where `early`). end: `kill` is SIGKILL, `stop` SIGSTOP for `pause`
    seconds and then SIGCONT and SIGKILL, `freeze` SIGSTOP and then SIGKILL without waking, `term` SIGTERM, `term2` another
    one soon after it.
    """

    life: float
    end: End
    early: bool = False
    pause: float = 0.0
    concurrency: int = 10


@dataclass(frozen=True)
class Trouble:
    """Something else that goes wrong, `after` seconds after the last one. `choice` picks a job or a connection: 0 to 1."""

    after: float
    what: Harm
    choice: float


def fates(seed: int, place: int) -> Iterator[Fate]:
    """The workers of one place, one after the other, for ever."""
    rng = Random(f"{seed} worker {place}")
    while True:
        early = rng.random() < 0.08
        life = rng.uniform(0.0, 0.06) if early else rng.choice((rng.uniform(0.02, 0.2), rng.uniform(0.05, 0.5)))
        end = _one_of(rng, ENDS)
        pause = rng.choice((rng.uniform(0.2, 0.8), rng.uniform(1.2, 2.5), rng.uniform(1.4, 2.5)))
        yield Fate(life, end, early, pause * LEASE, rng.choice((2, 10)))


def troubles(seed: int) -> Iterator[Trouble]:
    """All else, for ever. Who has no connections to cut leaves those out."""
    rng = Random(f"{seed} trouble")
    while True:
        what = _one_of(rng, HARMS)
        yield Trouble(rng.uniform(0.05, 0.4), what, rng.random())


def requests(seed: int) -> Iterator[Request]:
    """The jobs, for ever. The goal of each names its number."""
    number = 0
    while True:
        number += 1
        yield request(seed, number)


def request(seed: int, number: int) -> Request:
    """One job."""
    rng = Random(f"{seed} job {number}")
    options: EnqueueOptions = {"goal": f"job {number}", "priority": rng.randint(1, 9)}
    if rng.random() < 0.15:
        options["delay"] = rng.uniform(0, 0.8)
    if rng.random() < 0.3:
        options["idempotency_key"] = f"key {number}"
    if rng.random() < 0.03:
        options["deadline"] = datetime.now(UTC) + timedelta(seconds=rng.uniform(0.5, 5))
    match rng.randrange(20):
        case 0:
            fatal = rng.random() < 0.5
            if fatal:
                options["max_retries"] = STUBBORN
            return Request("chaos.doomed", Doom(fatal), options)
        case 1 | 2:
            ops = [_op(rng, f"op{n}", _PLAIN) for n in range(rng.randint(1, 4))]
            return Request("chaos.plain", Errand(ops), options)
        case 3 | 4:
            ops = [_op(rng, f"op{n}", (*_BUSY, "hang", "hang")) for n in range(rng.randint(1, 4))]
            return Request("chaos.timed", Errand(ops), options)
        case _:
            ops = [_op(rng, f"op{n}", (*_BUSY, *_WAITING)) for n in range(rng.randint(1, 7))]
            return Request("chaos.errand", Errand(ops), options)


_PLAIN = ("step", "step", "thread", "tool", "sleep")
_BUSY = (
    "step", "step", "step", "thread", "thread", "both", "both", "flaky", "tool", "tool", "tool", "checkpoint", "usage",
    "emit", "progress", "stumble",
)  # fmt: skip
_WAITING = ("sleep", "sleep", "approve", "approve", "snooze")


def _op(rng: Random, name: str, kinds: tuple[str, ...]) -> Op:
    brief = rng.choice((0.0, 0.0, 0.01, 0.05, 0.12))
    match rng.choice(kinds):
        case "tool":
            return Op("tool", name, brief, on_unknown=_one_of(rng, ON_UNKNOWN))
        case "sleep":
            return Op("sleep", name, rng.choice((0.02, 0.3, 0.8)))
        case "approve":
            says, on_deny, on_expiry = _one_of(rng, SAYS), _one_of(rng, ON_DENY), _one_of(rng, ON_EXPIRY)
            return Op("approve", name, rng.uniform(0.1, 1), says=says, on_deny=on_deny, on_expiry=on_expiry)
        case "stumble" | "hang" | "flaky" as what:
            return Op(what, name, brief, times=rng.randint(1, 2))
        case "snooze":
            return Op("snooze", name, brief)
        case what:
            return Op(what, name, brief)  # type: ignore[arg-type]  # the words above are words of Doing


def _one_of(rng: Random, weights: Mapping[T, int]) -> T:
    return rng.choices(list(weights), list(weights.values()))[0]
