"""What the seed decides: which jobs there are, how long each worker runs and how it ends, and which other faults are injected.

Each job, each slot of a worker and the other faults have random numbers of their own, so that no decision depends on timing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Literal, TypeVar

from perdure.chaos.jobs import (
    FLEETING,
    KEY_LIMIT,
    KEYS,
    MANY_RETRIES,
    RATE,
    RATED,
    RATED_KEYS,
    Answer,
    Failing,
    Op,
    OpList,
)
from perdure.chaos.worker_config import LEASE
from perdure.model.approvals import OnDeny, OnExpiry
from perdure.runtime.client.enqueue import EnqueueOptions, Request
from perdure.runtime.context.options import OnUnknown

HOUR = 3600.0
SKEWS = (0.0, HOUR, 0.0, -HOUR)
"""By how many seconds the clocks of the workers in each slot are wrong."""

End = Literal["kill", "stop", "freeze", "term", "term2"]
END_WEIGHTS: dict[End, int] = {"kill": 89, "stop": 5, "freeze": 1, "term": 3, "term2": 2}
FaultKind = Literal["cut", "drop_answer", "end", "cancel", "force", "due", "pause", "edit", "retry", "rerun", "delete"]
FAULT_WEIGHTS: dict[FaultKind, int] = {
    "cut": 4, "drop_answer": 9, "end": 3, "cancel": 2, "force": 1, "due": 2, "pause": 1, "edit": 1, "retry": 1,
    "rerun": 1, "delete": 1,
}  # fmt: skip
ANSWER_WEIGHTS: dict[Answer, int] = {"yes": 6, "edit": 2, "no": 1, "nothing": 1}
ON_UNKNOWN: dict[OnUnknown, int] = {"ask": 5, "retry": 5, "fail": 1}
ON_DENY: dict[OnDeny, int] = {"fail": 1, "resume": 1}
ON_EXPIRY: dict[OnExpiry, int] = {"fail": 1, "deny": 1, "continue": 1}
"""What may happen, with weights."""

T = TypeVar("T")


@dataclass(frozen=True)
class Lifetime:
    """How long one worker runs, and how it ends.

    seconds: from when it is ready (from its fork, where `early`). long: so many seconds, also on a busy machine.
    end: `kill` is SIGKILL, `stop` SIGSTOP for `pause` seconds and then SIGCONT and SIGKILL, `freeze` SIGSTOP and then SIGKILL
    without waking, `term` SIGTERM, `term2` another one soon after it.
    """

    seconds: float
    end: End
    early: bool = False
    long: bool = False
    pause: float = 0.0
    concurrency: int = 10


@dataclass(frozen=True)
class InjectedFault:
    """A fault besides those of workers, `after` seconds after the former one. choice: 0 to 1, picks a job or a connection."""

    after: float
    what: FaultKind
    choice: float


def lifetimes(seed: int, slot: int) -> Iterator[Lifetime]:
    """The lifetimes of the workers of one slot, one after the other, without end."""
    rng = Random(f"{seed} worker {slot}")
    while True:
        early = rng.random() < 0.08
        seconds = rng.uniform(0.0, 0.06) if early else rng.choice((rng.uniform(0.02, 0.2), rng.uniform(0.05, 0.5)))
        long = not early and rng.random() < 0.04
        if long:
            seconds = rng.uniform(1.5, 3.0)
        end = _one_of(rng, END_WEIGHTS)
        pause = rng.choice((rng.uniform(0.2, 0.8), rng.uniform(1.2, 2.5), rng.uniform(1.4, 2.5)))
        yield Lifetime(seconds, end, early, long, pause * LEASE, rng.choice((2, 10)))


def injected_faults(seed: int) -> Iterator[InjectedFault]:
    """The other faults, without end. Without a proxy those of connections are skipped."""
    rng = Random(f"{seed} fault")
    while True:
        what = _one_of(rng, FAULT_WEIGHTS)
        yield InjectedFault(rng.uniform(0.05, 0.4), what, rng.random())


def requests(seed: int) -> Iterator[Request]:
    """The jobs, without end. The goal of each has its number."""
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
    match rng.randrange(60):
        case 21:
            key = f"{RATED} {rng.randrange(RATED_KEYS)}"
            options |= {"concurrency_key": key, "max_per_minute": RATE}
            return Request(RATED, OpList([_op(rng, "op0", _BRIEF)]), options)
        case 22 | 23 | 24:
            options.pop("idempotency_key", None)
            return Request(FLEETING, OpList([_op(rng, f"op{n}", _BRIEF) for n in range(rng.randint(1, 3))]), options)
        case case if case < 3:
            fatal = rng.random() < 0.5
            if fatal:
                options["max_retries"] = MANY_RETRIES
            return Request("chaos.fails", Failing(fatal), options)
        case case if case < 9:
            ops = [_op(rng, f"op{n}", _PLAIN) for n in range(rng.randint(1, 4))]
            return Request("chaos.plain", OpList(ops), options)
        case case if case < 15:
            ops = [_op(rng, f"op{n}", (*_BUSY, *_HANGING)) for n in range(rng.randint(1, 4))]
            return Request("chaos.timed", OpList(ops), options)
        case case if case < 21:
            ops = [_op(rng, f"op{n}", (*_BUSY, "sleep", "snooze")) for n in range(rng.randint(1, 4))]
            return Request("chaos.limited", OpList(ops), options)
        case _:
            ops = [_op(rng, f"op{n}", (*_BUSY, *_WAITING, *_HARMFUL, *_CHANGING)) for n in range(rng.randint(1, 7))]
            if rng.random() < 0.25:
                options |= {"concurrency_key": f"key {rng.randrange(KEYS)}", "max_concurrent": KEY_LIMIT}
            return Request("chaos.ops", OpList(ops), options)


_PLAIN = ("step", "step", "thread", "tool", "sleep")
_BRIEF = ("checkpoint", "usage", "emit", "progress")
"""Without an effect outside of the database."""
_BUSY = (
    "step", "step", "step", "thread", "thread", "both", "both", "flaky", "tool", "tool", "tool", "checkpoint", "usage",
    "emit", "progress", "error", "caught step", "caught tool", "caught tool", "lost",
)  # fmt: skip
_WAITING = ("sleep", "sleep", "approve", "approve", "snooze", "signal", "signal", "ask")
_HANGING = ("hang", "hang", "deaf", "stuck")
_HARMFUL = ("block", "exit")
_CHANGING = ("changed", "added", "renamed")


def _op(rng: Random, name: str, kinds: tuple[str, ...]) -> Op:
    brief = rng.choice((0.0, 0.0, 0.01, 0.05, 0.12))
    match rng.choice(kinds):
        case "tool":
            return Op("tool", name, brief, on_unknown=_one_of(rng, ON_UNKNOWN))
        case "caught tool":
            return Op("caught tool", name, brief, known=rng.random() < 0.5, on_unknown=_one_of(rng, ON_UNKNOWN))
        case "lost":
            return Op("lost", name, brief, on_unknown=_one_of(rng, {"ask": 5, "retry": 1, "fail": 1}))
        case "sleep" | "renamed" as what:
            return Op(what, name, rng.choice((0.02, 0.3, 0.8)))
        case "approve":
            answer, on_deny, on_expiry = _one_of(rng, ANSWER_WEIGHTS), _one_of(rng, ON_DENY), _one_of(rng, ON_EXPIRY)
            return Op("approve", name, rng.uniform(0.1, 1), answer=answer, on_deny=on_deny, on_expiry=on_expiry)
        case "error" | "hang" | "flaky" as what:
            return Op(what, name, brief, times=rng.randint(1, 2))
        case "snooze":
            return Op("snooze", name, brief)
        case what:
            return Op(what, name, brief)  # type: ignore[arg-type]  # the words above are of Action


def _one_of(rng: Random, weights: Mapping[T, int]) -> T:
    return rng.choices(list(weights), list(weights.values()))[0]
