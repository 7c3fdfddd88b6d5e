"""The small app that the crash tests run and kill: jobs that do as their payload says, and processes that serve them."""

import asyncio
import itertools
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal
from uuid import UUID, uuid4

import structlog

from perdure import (
    App,
    ApprovalContext,
    ApprovalRequest,
    Backoff,
    BlockingContext,
    JobContext,
    Message,
    Request,
    Snooze,
)
from perdure.event_loop import run
from perdure.model.waits import kind_of, register
from perdure.runtime.client.enqueue import EnqueueOptions
from perdure.runtime.context.options import OnUnknown
from perdure.runtime.context.waits import wait_once
from tests.crash import bounded, kill_points, pruner, releases, rerunner
from tests.crash.child_config import ChildConfig
from tests.crash.kill_points import at_point, is_open, write_mark
from tests.flag_wait import FLAG

TOGETHER = 7
"""Jobs of one `enqueue_many` of a producer."""
AT_ONCE = Backoff(base=0, cap=0)
Doing = Literal[
    "step",
    "thread",
    "both",
    "tool",
    "sleep",
    "approve",
    "flag",
    "signal",
    "signals",
    "checkpoint",
    "usage",
    "emit",
    "pause",
    "block",
    "stumble",
    "snooze",
    "refused",
    "lost",
]


@dataclass(frozen=True)
class Op:
    """One thing a job does.

    seconds: how long it takes. gate: attempt N waits inside until the test opens `gate-N`. times: how often a `stumble` or a
    `snooze` ends an attempt. A `pause` is at its gate between two steps; a `block` too, with all of the process.
    """

    do: Doing
    name: str
    seconds: float = 0.0
    gate: str | None = None
    times: int = 1
    on_unknown: OnUnknown = "ask"


@dataclass(frozen=True)
class Errand:
    """What a job does, in order."""

    ops: list[Op] = field(default_factory=list)


def value_of(op: Op) -> Any:
    """What an op returns, whatever was killed meanwhile: jobs must end with these."""
    if op.do == "both":
        return [f"{op.name}/0", f"{op.name}/1"]
    return None if op.do in ("sleep", "pause", "block", "stumble", "snooze") else op.name


def result_of(errand: Errand) -> list[Any]:
    """What an errand must return."""
    return [value_of(op) for op in errand.ops]


async def errand(ctx: JobContext, errand: Errand) -> list[Any]:
    """Do it, and tell of every effect."""
    results: list[Any] = []
    for op in errand.ops:
        at_point(f"before {op.name}")
        results.append(await _DOERS[op.do](ctx, op))
        at_point(f"after {op.name}")
    at_point("before return")
    return results


async def collect(ctx: JobContext, numbers: int) -> list[int]:
    """Wait for so many signals."""
    return [await ctx.wait_signal("number", int) for _ in range(numbers)]


def blocking(ctx: BlockingContext, gate: str) -> str:
    """A plain handler, deep in code of its own until its gate is opened."""
    write_mark("effects", f"{ctx.job_id} {ctx.attempt} blocked")
    while not is_open(f"{gate}-{ctx.attempt}"):
        time.sleep(0.02)
    return ctx.step("one", str, "one")


async def count(ctx: JobContext, number: int) -> int:
    """One step, and done: for races over many jobs."""
    return await ctx.step("count", _counted, str(ctx.job_id), number)


def _counted(job_id: str, number: int) -> int:
    write_mark("counted", f"{job_id} {number} {os.getpid()}")
    return number


async def poison(ctx: JobContext) -> None:
    """It ends its process."""
    effect(ctx, "poison")
    await asyncio.sleep(0.2)
    os._exit(3)


async def innocent(ctx: JobContext) -> str:
    """It takes a while."""
    await asyncio.sleep(0.5)
    return await ctx.step("one", str, "one")


async def _act(ctx: JobContext, op: Op, what: str = "") -> str:
    name = what or op.name
    effect(ctx, name)
    await _at_gate(ctx, op)
    await asyncio.sleep(op.seconds)
    at_point(f"inside {op.name}")
    return name


async def _at_gate(ctx: JobContext, op: Op) -> None:
    while op.gate is not None and not is_open(f"{op.gate}-{ctx.attempt}"):
        await asyncio.sleep(0.02)


def effect(ctx: JobContext, name: str) -> None:
    """Something happened out there."""
    write_mark("effects", f"{ctx.job_id} {ctx.attempt} {name}")


async def _step(ctx: JobContext, op: Op) -> Any:
    return await ctx.step(op.name, partial(_act, ctx, op))


async def _thread(ctx: JobContext, op: Op) -> Any:
    def work() -> str:
        effect(ctx, op.name)
        while op.gate is not None and not is_open(f"{op.gate}-{ctx.attempt}"):
            time.sleep(0.02)
        at_point(f"inside {op.name}")
        return op.name

    return await ctx.step(op.name, work)


async def _tool(ctx: JobContext, op: Op) -> Any:
    return await ctx.options(on_unknown=op.on_unknown).tool(op.name, partial(_act, ctx, op))


async def _both(ctx: JobContext, op: Op) -> Any:
    names: list[str] = value_of(op)
    steps = (ctx.options(key=name).step(op.name, partial(_act, ctx, op, name)) for name in names)
    return list(await asyncio.gather(*steps))


async def _sleep(ctx: JobContext, op: Op) -> None:
    await ctx.sleep(op.name, op.seconds)


async def _approve(ctx: JobContext, op: Op) -> Any:
    def tell(request: ApprovalRequest) -> None:
        write_mark(f"tokens-{request.id}", request.token)
        at_point(f"inside notify {op.name}")

    decision = await ctx.approve(op.name, title=f"May {op.name} be?", payload=op.name, notify=tell)
    return decision.payload


async def _flag(ctx: JobContext, op: Op) -> Any:
    if kind_of(FLAG.name) is not FLAG:
        register(FLAG)
    await wait_once(ctx._run, FLAG, op.name, subject_id=op.name)
    return op.name


async def _signal(ctx: JobContext, op: Op) -> Any:
    return await ctx.wait_signal(op.name, str)


async def _signals(ctx: JobContext, op: Op) -> Any:
    """Take what is pending until the one of this name has come."""
    while op.name not in [signal.key for signal in await ctx.receive_signals()]:
        await ctx.sleep("again", 0.05)
    return op.name


async def _checkpoint(ctx: JobContext, op: Op) -> Any:
    await ctx.checkpoint({"at": op.name})
    return op.name


async def _usage(ctx: JobContext, op: Op) -> Any:
    await ctx.usage(tokens=7)
    await ctx.progress(0.5, op.name)
    return op.name


async def _emit(ctx: JobContext, op: Op) -> Any:
    await ctx.emit("waypoint", {"name": op.name})
    return op.name


async def _pause(ctx: JobContext, op: Op) -> None:
    effect(ctx, op.name)
    await _at_gate(ctx, op)


async def _block(ctx: JobContext, op: Op) -> None:
    """As a pause, and the event loop stands still."""
    effect(ctx, op.name)
    while op.gate is not None and not is_open(f"{op.gate}-{ctx.attempt}"):
        time.sleep(0.02)


async def _stumble(ctx: JobContext, op: Op) -> None:
    if ctx.retry_count < op.times:
        raise RuntimeError(f"stumbled over {op.name}")


async def _snooze(ctx: JobContext, op: Op) -> None:
    if ctx.attempt <= op.times:
        raise Snooze(op.seconds)


async def _refused(ctx: JobContext, op: Op) -> Any:
    """A tool that fails; the handler goes on. A `lost` one may have had its effect."""

    async def fail() -> None:
        await _act(ctx, op)
        raise ValueError("no") if op.do == "refused" else TimeoutError("no answer")

    with suppress(ValueError, TimeoutError):
        await ctx.options(on_unknown=op.on_unknown).tool(op.name, fail)
    return op.name


_DOERS = {
    "step": _step,
    "thread": _thread,
    "tool": _tool,
    "sleep": _sleep,
    "approve": _approve,
    "flag": _flag,
    "signal": _signal,
    "signals": _signals,
    "checkpoint": _checkpoint,
    "usage": _usage,
    "emit": _emit,
    "pause": _pause,
    "both": _both,
    "block": _block,
    "stumble": _stumble,
    "snooze": _snooze,
    "refused": _refused,
    "lost": _refused,
}


def make_app(url: str | None = None, release: int = 1) -> App:
    """The app, as every process of a test has it."""
    app = App(url, version=f"{release}")
    app.job(max_retries=100, backoff=AT_ONCE)(errand)
    app.job(max_retries=100, backoff=AT_ONCE)(count)
    app.job(max_retries=100, backoff=AT_ONCE)(collect)
    app.job(max_retries=100, backoff=AT_ONCE)(blocking)
    app.job(max_retries=1)(poison)
    app.job(max_retries=0)(innocent)
    add_agents(app)
    add_families(app)
    add_talker(app)
    add_deployer(app)
    bounded.add_bounded(app)
    releases.register(app, release)
    return app


def add_agents(app: App) -> None:
    """A writer that sends to a critic, which replies; a host that asks the critic, and receives."""

    @app.agent("writer", max_retries=100, backoff=AT_ONCE)
    async def write(ctx: JobContext, message: Message) -> str:
        if message.reply_to is None:
            await ctx.step("one", partial(_act, ctx, Op("step", "one")))
            await ctx.send("critic", f"{message.payload}, please")
        else:
            await ctx.step("read", partial(_act, ctx, Op("step", "read")))
        return str(message.payload)

    @app.agent("critic", max_retries=100, backoff=AT_ONCE).on_message(str)
    async def judge(ctx: JobContext, text: str) -> str:
        return await ctx.step("judge", partial(_act, ctx, Op("step", "judge"), f"{text}: yes"))

    @app.agent("host", max_retries=100, backoff=AT_ONCE)
    async def host(ctx: JobContext, message: Message) -> list[str]:
        judged = await ctx.ask("critic", message.payload, str)
        [news] = await ctx.receive("news", limit=1)
        return [judged, str(news.payload)]


def add_families(app: App) -> None:
    """A parent of two children, and the callback of a batch."""

    @app.job(max_retries=100, backoff=AT_ONCE)
    async def leaf(ctx: JobContext, name: str) -> str:
        return await ctx.step("leaf", partial(_act, ctx, Op("step", "leaf"), name))

    @app.job(max_retries=100, backoff=AT_ONCE)
    async def parent(ctx: JobContext) -> list[str]:
        return await ctx.gather(*[await ctx.spawn(leaf, name) for name in ("1", "2")])

    @app.job(max_retries=100, backoff=AT_ONCE)
    async def callback(ctx: JobContext) -> int:
        return (await ctx.batch()).completed


def add_talker(app: App) -> None:
    """A job that keeps its conversation, variables and actions."""

    @app.job(max_retries=100, backoff=AT_ONCE)
    async def talker(ctx: JobContext) -> list[dict[str, Any]]:
        async def ask(messages: list[dict[str, Any]]) -> str:
            await ctx.messages.append("assistant", f"{len(messages)}")
            return "asked"

        await ctx.messages.append("user", "hello")
        for _ in range(2):
            await ctx.step("ask", ask, ctx.messages.list())
            await ctx.vars.set("turns", ctx.vars.get("turns", 0) + 1)
            await ctx.options(on_unknown="retry").tool("post", str, ctx.vars["turns"])
        await ctx.messages.append("user", "thanks")
        return ctx.messages.list()


def add_deployer(app: App) -> None:
    """A job whose tool a person approves, and another tool that is given the first one's output."""

    @app.job(max_retries=100, backoff=AT_ONCE, approval_context=ApprovalContext({"deploy": "always"}, default="never"))
    async def deployer(ctx: JobContext) -> dict[str, Any]:
        def deploy(version: str) -> str:
            write_mark("effects", f"{ctx.job_id} {ctx.attempt} deploy")
            ctx.tool_output_stash.state["__version"] = version
            return version * 30_000

        def measure(text: str) -> int:
            return len(text)

        retried = ctx.options(on_unknown="retry")
        await retried.options(tool_call_id="call_1").tool("deploy", deploy, "1.2")
        size = await retried.tool("measure", measure, "$call_1")
        return {"size": size, "version": ctx.tool_output_stash.state["__version"]}


# --- processes -----------------------------------------------------------------------------------------------------------


async def work(config: ChildConfig) -> None:
    """A worker, until it is stopped or killed."""
    async with make_app(config.url, config.release) as app:
        kill_points.add_kill_points(await app.open())
        write_mark("ready", str(os.getpid()))
        write_mark("clocks", str(datetime.now(UTC).timestamp()))
        await app.work(
            queues=config.queues,
            concurrency=config.concurrency,
            lease=config.lease,
            linger=config.linger,
            drain_timeout=config.drain_timeout,
            chores=config.chores,
        )


async def produce(config: ChildConfig) -> None:
    """Enqueue until killed, and tell of a job only when it is acknowledged."""
    async with make_app(config.url) as app:
        numbers = itertools.count()

        async def singly() -> None:
            while True:
                _tell((await app.enqueue("count", next(numbers))).id)

        async def together() -> None:
            while True:
                options: EnqueueOptions = {"goal": f"batch {uuid4()}"}
                batch = [Request("count", next(numbers), options) for _ in range(TOGETHER)]
                for handle in await app.enqueue_many(batch):
                    _tell(handle.id)

        await asyncio.gather(singly(), singly(), singly(), together())


async def send_signals(config: ChildConfig) -> None:
    """Send the numbers from 0 on to the one job that collects them until killed, and tell of each that is acknowledged."""
    async with make_app(config.url) as app:
        [job] = (await app.jobs.list(kind="collect")).items
        numbers = itertools.count()

        async def send() -> None:
            for number in numbers:
                await app.signal(job.id, "number", number, id=str(number))
                write_mark("sent", str(number))

        await asyncio.gather(send(), send())


def _tell(job_id: UUID) -> None:
    write_mark("acknowledged", str(job_id))


def run_child(config: ChildConfig) -> None:
    """Run as this configuration says."""
    kill_points.configure(config)
    structlog.configure(processors=[structlog.stdlib.add_log_level, structlog.processors.KeyValueRenderer()])
    role = {
        "worker": work,
        "producer": produce,
        "sender": send_signals,
        "migrator": kill_points.migrate,
        "pruner": pruner.prune,
        "rerunner": rerunner.rerun,
    }[config.role]
    run(role(config))


app = make_app()
"""For `perdure worker start --app tests.crash.apps:app`."""
