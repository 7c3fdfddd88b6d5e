"""The jobs that run while workers die: what they do, and how each of them must end."""

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
"""What the names of the harness's own jobs begin with."""
ATTEMPT_TIMEOUT = 0.8
STUBBORN = 100
"""Retries of jobs that must get through, however often their workers die."""

Doing = Literal[
    "step", "thread", "both", "flaky", "tool", "sleep", "approve", "checkpoint", "usage", "emit", "progress",
    "stumble", "snooze", "hang",
]  # fmt: skip
Says = Literal["yes", "edit", "no", "nothing"]


@dataclass(frozen=True)
class Op:
    """One thing a job does.

    seconds: how long it takes. times: how often a `stumble` or `hang` spoils an attempt, and a `snooze` ends one.
    says: what the clerk answers an approval; on_deny, on_expiry: what the job makes of it.
    """

    do: Doing
    name: str
    seconds: float = 0.0
    times: int = 1
    on_unknown: OnUnknown = "ask"
    says: Says = "yes"
    on_deny: OnDeny = "fail"
    on_expiry: OnExpiry = "fail"


@dataclass(frozen=True)
class Errand:
    """What a job does, in order."""

    ops: list[Op] = field(default_factory=list)


@dataclass(frozen=True)
class Doom:
    """How a job without hope fails."""

    fatal: bool


# -- what must come of it ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ending:
    """A way a job may end; error_kind None is any."""

    status: Status
    result: Any = None
    error_kind: str | None = None


def value_of(op: Op) -> Any:
    """What an op gives, whoever is killed on the way."""
    match op.do:
        case "both":
            return branches(op)
        case "approve" if op.says == "edit":
            return f"{op.name} edited"
        case "approve" if op.says in ("no", "nothing"):
            return f"{op.name} refused"
        case "step" | "thread" | "flaky" | "tool" | "approve":
            return op.name
        case _:
            return None


def branches(op: Op) -> list[str]:
    """The parallel steps of a `both`."""
    return [f"{op.name}/0", f"{op.name}/1"]


def endings(kind: str, payload: Any, *, deadline: bool) -> list[Ending]:
    """How a job of this input may end, unless it is cancelled; told from the input alone."""
    late = [Ending(Status.FAILED, error_kind="timeout")] if deadline else []
    if kind == "chaos.doomed":
        last = Ending(Status.FAILED, error_kind="fatal") if payload["fatal"] else Ending(Status.DEADLETTER)
        return [last, *late]
    ops = [Op(**op) for op in payload["ops"]]
    for op in ops:
        if op.do == "tool" and op.on_unknown == "fail":
            late.append(Ending(Status.FAILED, error_kind="unknown_outcome"))
        if op.do == "approve" and op.says == "no" and op.on_deny == "fail":
            return [Ending(Status.FAILED, error_kind="denied"), *late]
        if op.do == "approve" and op.says == "nothing" and op.on_expiry == "fail":
            return [Ending(Status.FAILED, error_kind="expired"), *late]
        if op.do == "approve" and op.says == "nothing" and op.on_expiry == "deny" and op.on_deny == "fail":
            return [Ending(Status.FAILED, error_kind="denied"), *late]
    return [Ending(Status.COMPLETED, [value_of(op) for op in ops]), *late]


# -- what they leave outside -----------------------------------------------------------------------------------------


class Witness:
    """A directory outside the database where jobs leave what they really did; a kill right after it does not undo it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._file = os.open(place / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def effect(self, ctx: JobContext | BlockingContext, name: str) -> None:
        """Something happened out there."""
        os.write(self._file, f"{ctx.job_id} {ctx.attempt} {name}\n".encode())

    def token(self, request: ApprovalRequest) -> None:
        """The link of an approval was handed out; the last one counts."""
        (self._place / f"token-{request.id}").write_text(request.token)


# -- handlers --------------------------------------------------------------------------------------------------------


class Errands:
    """The handlers, with their witness."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._doers: dict[Doing, Callable[[JobContext, Op], Awaitable[Any]]] = {
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
            "stumble": self._stumble,
            "snooze": self._snooze,
            "hang": self._hang,
        }

    async def run(self, ctx: JobContext, errand: Errand) -> list[Any]:
        """Do it all, in order."""
        return [await self._doers[op.do](ctx, op) for op in errand.ops]

    def plain(self, ctx: BlockingContext, errand: Errand) -> list[Any]:
        """Do it all, in a thread."""
        return [self._plainly(ctx, op) for op in errand.ops]

    async def doomed(self, ctx: JobContext, doom: Doom) -> None:
        """Fail, sooner or later."""
        await ctx.step("hope", partial(self._act, ctx, Op("step", "hope")))
        if doom.fatal:
            raise Fail("there is no hope")
        raise RuntimeError("there is no hope, but one may try")

    async def _act(self, ctx: JobContext, op: Op, what: str = "") -> str:
        self._witness.effect(ctx, what or op.name)
        await asyncio.sleep(op.seconds)
        return what or op.name

    async def _step(self, ctx: JobContext, op: Op) -> Any:
        return await ctx.step(op.name, partial(self._act, ctx, op))

    async def _thread(self, ctx: JobContext, op: Op) -> Any:
        def work() -> str:
            self._witness.effect(ctx, op.name)
            return op.name

        return await ctx.step(op.name, work)

    async def _both(self, ctx: JobContext, op: Op) -> Any:
        steps = (ctx.options(key=name).step(op.name, partial(self._act, ctx, op, name)) for name in branches(op))
        return list(await asyncio.gather(*steps))

    async def _flaky(self, ctx: JobContext, op: Op) -> Any:
        tries = 0

        async def try_it() -> str:
            nonlocal tries
            tries += 1
            if tries <= op.times:
                raise ConnectionError("not this time")
            return await self._act(ctx, op)

        return await ctx.options(retries=op.times, backoff=Backoff(base=0.01, cap=0.05)).step(op.name, try_it)

    async def _tool(self, ctx: JobContext, op: Op) -> Any:
        return await ctx.options(on_unknown=op.on_unknown).tool(op.name, partial(self._act, ctx, op))

    async def _sleep(self, ctx: JobContext, op: Op) -> None:
        await ctx.sleep(op.name, op.seconds)

    async def _approve(self, ctx: JobContext, op: Op) -> Any:
        try:
            decision = await ctx.approve(
                op.name,
                title=f"May {op.name} be?",
                payload={"value": op.name, "says": op.says},
                expires_in=op.seconds if op.says == "nothing" else None,
                on_deny=op.on_deny,
                on_expiry=op.on_expiry,
                notify=self._witness.token,
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

    async def _stumble(self, ctx: JobContext, op: Op) -> None:
        if ctx.retry_count < op.times:
            raise RuntimeError(f"stumbled over {op.name}")

    async def _snooze(self, ctx: JobContext, op: Op) -> None:
        if ctx.attempt <= op.times:
            raise Snooze(op.seconds)

    async def _hang(self, ctx: JobContext, op: Op) -> None:
        if ctx.retry_count < op.times:
            await asyncio.sleep(3600)

    def _plainly(self, ctx: BlockingContext, op: Op) -> Any:
        def act() -> str:
            self._witness.effect(ctx, op.name)
            return op.name

        match op.do:
            case "step" | "thread":
                return ctx.step(op.name, act)
            case "tool":
                return ctx.options(on_unknown=op.on_unknown).tool(op.name, act)
            case "sleep":
                return ctx.sleep(op.name, op.seconds)
            case _:
                raise Fail(f"a plain errand cannot {op.do}")


def make_app(url: str, tenant: str, place: Path) -> App:
    """The App, as every process of a run has it."""
    own = load_settings(
        {"database_url": url, "tenant": tenant}, environ={}, directory=place
    )  # nobody else's perdure.toml
    app = App(settings=own, migrate=False, via="chaos")
    errands = Errands(Witness(place))
    quick = Backoff(base=0.02, cap=0.4)
    app.job(name="chaos.errand", queue=QUEUE, max_retries=STUBBORN, backoff=quick)(errands.run)
    app.job(name="chaos.timed", queue=QUEUE, max_retries=STUBBORN, backoff=quick, timeout=ATTEMPT_TIMEOUT)(errands.run)
    app.job(name="chaos.plain", queue=QUEUE, max_retries=STUBBORN, backoff=quick)(errands.plain)
    app.job(name="chaos.doomed", queue=QUEUE, max_retries=2, backoff=quick)(errands.doomed)
    return app
