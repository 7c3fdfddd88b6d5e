"""The jobs of a run: what they do, and how each of them must end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.model.approvals import OnDeny, OnExpiry
from perdure.model.messages import messages_of_payload
from perdure.model.states import Status
from perdure.runtime.context.options import OnUnknown

QUEUE = "chaos"
KINDS = "chaos."
"""The prefix of the kinds of the harness."""
ECHO, BATCHES, TICK = "chaos.echo", "chaos.batches", "chaos.tick"
"""The agents, each of which is also the kind of its jobs, and the schedule with its kind."""
LISTENER = "chaos.listener"
"""The agent whose jobs take messages and signals while they run, and their kind."""
FAILING = "chaos.fails"
RATED, FLEETING = "chaos.rated", "chaos.fleeting"
"""Kinds of jobs: those whose keys have a rate, and those that are deleted when they have ended."""
RATE = 10
"""Jobs of a key of `chaos.rated` that start in any minute."""
RATED_KEYS = 2
ATTEMPT_TIMEOUT = 0.8
REPLY_TIMEOUT = 45.0
LIMIT = 3
"""Jobs of kind `chaos.limited` that run at a time."""
KEYS = 4
"""Concurrency keys of other jobs, of each of which `KEY_LIMIT` run at a time."""
KEY_LIMIT = 2
MANY_RETRIES = 100
"""Retries of jobs that must be completed, however often their workers are killed."""

Action = Literal[
    "step", "thread", "both", "flaky", "tool", "sleep", "approve", "checkpoint", "usage", "emit", "progress",
    "error", "snooze", "hang", "caught step", "caught tool", "lost", "deaf", "stuck", "block", "exit", "changed", "added",
    "renamed", "signal", "ask",
]  # fmt: skip
TOOLS: tuple[Action, ...] = ("tool", "caught tool", "lost")
"""The ops that call a tool."""
Answer = Literal["yes", "edit", "no", "nothing"]


@dataclass(frozen=True)
class Op:
    """One thing a job does.

    seconds: how long it takes. times: how many attempts an `error` or `hang` fails, and a `snooze` ends; how often a `lost`,
    `deaf`, `stuck`, `block` or `exit` does harm. known: whether the error of a `caught tool` says that nothing happened.
    answer: how an approval is decided; on_deny, on_expiry: what the job does then.
    """

    do: Action
    name: str
    seconds: float = 0.0
    times: int = 1
    known: bool = False
    on_unknown: OnUnknown = "ask"
    answer: Answer = "yes"
    on_deny: OnDeny = "fail"
    on_expiry: OnExpiry = "fail"


@dataclass(frozen=True)
class OpList:
    """What a job does, in order."""

    ops: list[Op] = field(default_factory=list)


@dataclass(frozen=True)
class Failing:
    """How a job fails that always fails."""

    fatal: bool


# -- how they must end -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExpectedEnd:
    """A way a job may end; error_kind None is any. any_result: its result is checked elsewhere."""

    status: Status
    result: Any = None
    error_kind: str | None = None
    any_result: bool = False


def value_of(op: Op) -> Any:
    """What an op returns, however often its worker is killed."""
    match op.do:
        case "both":
            return branches(op)
        case "approve" if op.answer == "edit":
            return f"{op.name} edited"
        case "approve" if op.answer in ("no", "nothing"):
            return f"{op.name} refused"
        case (
            "step"
            | "thread"
            | "flaky"
            | "tool"
            | "approve"
            | "caught step"
            | "caught tool"
            | "lost"
            | "stuck"
            | "changed"
            | "signal"
            | "ask"
        ):
            return op.name
        case _:
            return None


def branches(op: Op) -> list[str]:
    """The parallel steps of a `both`."""
    return [f"{op.name}/0", f"{op.name}/1"]


def effects_of(op: Op) -> set[str]:
    """The names of the effects that an op may have."""
    return {op.name, *branches(op)}


def expected_ends(kind: str, payload: Any, *, deadline: bool) -> list[ExpectedEnd]:
    """How a job of this input may end, unless it is cancelled; from its input alone."""
    late = [ExpectedEnd(Status.FAILED, error_kind="timeout")] if deadline else []
    if kind == FAILING:
        last = ExpectedEnd(Status.FAILED, error_kind="fatal") if payload["fatal"] else ExpectedEnd(Status.DEADLETTER)
        return [last, *late]
    if kind in (ECHO, BATCHES):
        answers = [message.payload if kind == ECHO else None for message in messages_of_payload(payload)]
        return [ExpectedEnd(Status.COMPLETED, answers if len(answers) > 1 else answers[0])]
    if kind == LISTENER:
        return [ExpectedEnd(Status.COMPLETED, any_result=True)]
    if kind == TICK:
        return [ExpectedEnd(Status.COMPLETED)]
    ops = [Op(**op) for op in payload["ops"]]
    for op in ops:
        if op.do in TOOLS and op.on_unknown == "fail":
            late.append(ExpectedEnd(Status.FAILED, error_kind="unknown_outcome"))
        if op.do == "approve" and op.answer == "no" and op.on_deny == "fail":
            return [ExpectedEnd(Status.FAILED, error_kind="denied"), *late]
        if op.do == "approve" and op.answer == "nothing" and op.on_expiry == "fail":
            return [ExpectedEnd(Status.FAILED, error_kind="expired"), *late]
        if op.do == "approve" and op.answer == "nothing" and op.on_expiry == "deny" and op.on_deny == "fail":
            return [ExpectedEnd(Status.FAILED, error_kind="denied"), *late]
    return [ExpectedEnd(Status.COMPLETED, [value_of(op) for op in ops]), *late]
