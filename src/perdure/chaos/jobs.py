"""The jobs of a run: what they do, and how each of them must end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from perdure.app import App
from perdure.config import load_settings
from perdure.model.approvals import OnDeny, OnExpiry
from perdure.model.errors import Denied, Fail, Snooze
from perdure.model.states import Status
from perdure.model.timing import Backoff
from perdure.runtime.context.approvals import ApprovalRequest
from perdure.runtime.context.blocking import BlockingContext
from perdure.runtime.context.context import JobContext
from perdure.runtime.context.options import OnUnknown

QUEUE = "chaos"
KINDS = "chaos."
"""The prefix of the kinds of the harness."""
ATTEMPT_TIMEOUT = 0.8
MANY_RETRIES = 100
"""Retries of jobs that must be completed, however often their workers are killed."""

Action = Literal[
    "step", "thread", "both", "flaky", "tool", "sleep", "approve", "checkpoint", "usage", "emit", "progress",
    "error", "snooze", "hang",
]  # fmt: skip
Answer = Literal["yes", "edit", "no", "nothing"]


@dataclass(frozen=True)
class Op:
    """One thing a job does.

    seconds: how long it takes. times: how many attempts an `error` or `hang` fails, and a `snooze` ends.
    answer: how an approval is decided; on_deny, on_expiry: what the job does then.
    """

    do: Action
    name: str
    seconds: float = 0.0
    times: int = 1
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
    """A way a job may end; error_kind None is any."""

    status: Status
    result: Any = None
    error_kind: str | None = None


def value_of(op: Op) -> Any:
    """What an op returns, however often its worker is killed."""
    match op.do:
        case "both":
            return branches(op)
        case "approve" if op.answer == "edit":
            return f"{op.name} edited"
        case "approve" if op.answer in ("no", "nothing"):
            return f"{op.name} refused"
        case "step" | "thread" | "flaky" | "tool" | "approve":
            return op.name
        case _:
            return None


def branches(op: Op) -> list[str]:
    """The parallel steps of a `both`."""
    return [f"{op.name}/0", f"{op.name}/1"]


def expected_ends(kind: str, payload: Any, *, deadline: bool) -> list[ExpectedEnd]:
    """How a job of this input may end, unless it is cancelled; from its input alone."""
    late = [ExpectedEnd(Status.FAILED, error_kind="timeout")] if deadline else []
    if kind == "chaos.fails":
        last = ExpectedEnd(Status.FAILED, error_kind="fatal") if payload["fatal"] else ExpectedEnd(Status.DEADLETTER)
        return [last, *late]
    ops = [Op(**op) for op in payload["ops"]]
    for op in ops:
        if op.do == "tool" and op.on_unknown == "fail":
            late.append(ExpectedEnd(Status.FAILED, error_kind="unknown_outcome"))
        if op.do == "approve" and op.answer == "no" and op.on_deny == "fail":
            return [ExpectedEnd(Status.FAILED, error_kind="denied"), *late]
        if op.do == "approve" and op.answer == "nothing" and op.on_expiry == "fail":
            return [ExpectedEnd(Status.FAILED, error_kind="expired"), *late]
        if op.do == "approve" and op.answer == "nothing" and op.on_expiry == "deny" and op.on_deny == "fail":
            return [ExpectedEnd(Status.FAILED, error_kind="denied"), *late]
    return [ExpectedEnd(Status.COMPLETED, [value_of(op) for op in ops]), *late]


# -- effects outside of the database ---------------------------------------------------------------------------------


class EffectLog:
    """A file outside of the database to which jobs append each effect; no kill can undo that."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = os.open(directory / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, ctx: JobContext | BlockingContext, name: str) -> None:
        """Append an effect."""
        os.write(self._file, f"{ctx.job_id} {ctx.attempt} {name}\n".encode())

    def token(self, request: ApprovalRequest) -> None:
        """Write the token of an approval's link to a file; the last one counts."""
        (self._directory / f"token-{request.id}").write_text(request.token)


# -- handlers --------------------------------------------------------------------------------------------------------


class Handlers:
    """The handlers, with the file of their effects."""

    def __init__(self, effects: EffectLog) -> None:
        self._effects = effects
        self._actions: dict[Action, Callable[[JobContext, Op], Awaitable[Any]]] = {
            "step": self._step,
            "thread": self._thread,
            "both": self._both,
            "flaky": self._flaky,
            "tool": self._tool,
            "sleep": self._sleep,
            "approve": self._approve,
            "checkpoint": self._checkpoint,
            "usage": self._usage,
            "emit": self._emit,
            "progress": self._progress,
            "error": self._raise,
            "snooze": self._snooze,
            "hang": self._hang,
        }

    async def run(self, ctx: JobContext, work: OpList) -> list[Any]:
        """Run the ops in order."""
        return [await self._actions[op.do](ctx, op) for op in work.ops]

    def plain(self, ctx: BlockingContext, work: OpList) -> list[Any]:
        """Run the ops in a thread."""
        return [self._run_plain(ctx, op) for op in work.ops]

    async def fails(self, ctx: JobContext, failing: Failing) -> None:
        """Fail at once or after the retries."""
        await ctx.step("before", partial(self._act, ctx, Op("step", "before")))
        if failing.fatal:
            raise Fail("this job always fails")
        raise RuntimeError("this job fails in every attempt")

    async def _act(self, ctx: JobContext, op: Op, what: str = "") -> str:
        self._effects.append(ctx, what or op.name)
        await asyncio.sleep(op.seconds)
        return what or op.name

    async def _step(self, ctx: JobContext, op: Op) -> Any:
        return await ctx.step(op.name, partial(self._act, ctx, op))

    async def _thread(self, ctx: JobContext, op: Op) -> Any:
        def work() -> str:
            self._effects.append(ctx, op.name)
            return op.name

        return await ctx.step(op.name, work)

    async def _both(self, ctx: JobContext, op: Op) -> Any:
        steps = (ctx.options(key=name).step(op.name, partial(self._act, ctx, op, name)) for name in branches(op))
        return list(await asyncio.gather(*steps))

    async def _flaky(self, ctx: JobContext, op: Op) -> Any:
        calls = 0

        async def call() -> str:
            nonlocal calls
            calls += 1
            if calls <= op.times:
                raise ConnectionError("not this time")
            return await self._act(ctx, op)

        return await ctx.options(retries=op.times, backoff=Backoff(base=0.01, cap=0.05)).step(op.name, call)

    async def _tool(self, ctx: JobContext, op: Op) -> Any:
        return await ctx.options(on_unknown=op.on_unknown).tool(op.name, partial(self._act, ctx, op))

    async def _sleep(self, ctx: JobContext, op: Op) -> None:
        await ctx.sleep(op.name, op.seconds)

    async def _approve(self, ctx: JobContext, op: Op) -> Any:
        try:
            decision = await ctx.approve(
                op.name,
                title=f"May {op.name} be?",
                payload={"value": op.name, "answer": op.answer},
                expires_in=op.seconds if op.answer == "nothing" else None,
                on_deny=op.on_deny,
                on_expiry=op.on_expiry,
                notify=self._effects.token,
            )
        except Denied:
            return f"{op.name} refused"
        return decision.payload["value"] if decision.approved else f"{op.name} refused"

    async def _checkpoint(self, ctx: JobContext, op: Op) -> None:
        await ctx.checkpoint({"at": op.name})

    async def _usage(self, ctx: JobContext, op: Op) -> None:
        del op
        await ctx.usage(tokens=7)

    async def _emit(self, ctx: JobContext, op: Op) -> None:
        await ctx.emit("waypoint", {"name": op.name})

    async def _progress(self, ctx: JobContext, op: Op) -> None:
        await ctx.progress(0.5, op.name)

    async def _raise(self, ctx: JobContext, op: Op) -> None:
        if ctx.retry_count < op.times:
            raise RuntimeError(f"{op.name} raises in this attempt")

    async def _snooze(self, ctx: JobContext, op: Op) -> None:
        if ctx.attempt <= op.times:
            raise Snooze(op.seconds)

    async def _hang(self, ctx: JobContext, op: Op) -> None:
        if ctx.retry_count < op.times:
            await asyncio.sleep(3600)

    def _run_plain(self, ctx: BlockingContext, op: Op) -> Any:
        def act() -> str:
            self._effects.append(ctx, op.name)
            return op.name

        match op.do:
            case "step" | "thread":
                return ctx.step(op.name, act)
            case "tool":
                return ctx.options(on_unknown=op.on_unknown).tool(op.name, act)
            case "sleep":
                return ctx.sleep(op.name, op.seconds)
            case _:
                raise Fail(f"a plain handler cannot {op.do}")


def make_app(url: str, tenant: str, directory: Path) -> App:
    """The App of every process of a run."""
    own = load_settings(
        {"database_url": url, "tenant": tenant}, environ={}, directory=directory
    )  # no perdure.toml from elsewhere
    app = App(settings=own, migrate=False, via="chaos")
    handlers = Handlers(EffectLog(directory))
    quick = Backoff(base=0.02, cap=0.4)
    app.job(name="chaos.ops", queue=QUEUE, max_retries=MANY_RETRIES, backoff=quick)(handlers.run)
    app.job(name="chaos.timed", queue=QUEUE, max_retries=MANY_RETRIES, backoff=quick, timeout=ATTEMPT_TIMEOUT)(
        handlers.run
    )
    app.job(name="chaos.plain", queue=QUEUE, max_retries=MANY_RETRIES, backoff=quick)(handlers.plain)
    app.job(name="chaos.fails", queue=QUEUE, max_retries=2, backoff=quick)(handlers.fails)
    return app
