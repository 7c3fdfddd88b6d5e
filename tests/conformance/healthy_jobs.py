"""A database with a job of every kind in every state, without damage, and changes of it with its triggers switched off."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from perdure import App, Backoff, Fail, JobContext, Message, Request, Snooze, Status
from perdure.model.account_choice import TaskKind
from perdure.model.effects import add_tool_run, open_wait, patch_state
from perdure.model.events import NewEvent
from perdure.model.fsck_faults import Finding
from perdure.model.jobs import Wait, completed
from perdure.model.task_records import NewFile, OutputChunk, ToolRun
from perdure.model.tooling import Account, CliRun, RunClass
from perdure.runtime.client.fsck import Fsck
from perdure.store.protocol import Store
from perdure.store.protocol.leases import KindLimit
from tests.conformance.sql_shell import PostgresShell, Shell, SqliteShell
from tests.conformance.support import HOUR, NOTE, S, enqueue, later, own_queue, run_out, run_to, started

PATIENCE = 30.0

S_OF = {
    "completed": S.COMPLETED,
    "pruned": S.COMPLETED,
    "rerun": S.COMPLETED,
    "forked": S.COMPLETED,
    "fork": S.PENDING,
    "asked": S.COMPLETED,
    "parked": S.PARKED,
    "asking": S.WAITING_FOR_APPROVAL,
    "listening": S.PARKED,
    "heard": S.PARKED,
    "paid": S.COMPLETED,
    "failed": S.FAILED,
    "dead": S.DEADLETTER,
    "retrying": S.RETRY,
    "snoozing": S.RETRY,
    "gone": S.CANCELLED,
    "running": S.RUNNING,
    "waiting": S.WAITING,
    "pending": S.PENDING,
    "delayed": S.PENDING,
    "never": S.CANCELLED,
    "decided": S.WAITING_FOR_APPROVAL,
    "taken": S.RETRY,
    "late": S.FAILED,
    "slot": S.RUNNING,
    "held": S.PENDING,
    "keyed": S.PENDING,
    "task": S.PENDING,
    "coding": S.RUNNING,
    "coded": S.COMPLETED,
    "answered": S.COMPLETED,
    "expecting": S.PARKED,
    "received": S.PARKED,
    "parent": S.PARKED,
    "child": S.PENDING,
    "joined": S.PARKED,
    "ended": S.CANCELLED,
    "callback": S.PENDING,
    "part": S.PENDING,
}
"""Every job of a healthy database by its name, and the state it is in."""


def make_app(url: str) -> App:
    """Handlers that between them write every type of event."""
    app = App(url)
    once = Backoff(base=HOUR, cap=HOUR, jitter=0)

    @app.job(max_retries=3, backoff=Backoff(base=0, cap=0))
    async def completed(ctx: JobContext) -> int:
        await ctx.step("one", lambda: 1)
        await ctx.step("one", lambda: 2)
        await ctx.step("slow", asyncio.sleep, 0.12)
        await ctx.tool("post", lambda: 3)
        await ctx.checkpoint({"at": '\u0000 and \\ and " are legal', "n": 1})
        await ctx.usage(tokens=7, cost=0.1)
        await ctx.usage(tokens=5, cost=0.2)
        await ctx.progress(0.5, "half")
        await ctx.options(key=str(ctx.attempt)).emit("waypoint", {"key": "one"})  # in each attempt
        await ctx.sleep("moment", 0.05)
        if ctx.retry_count < 1:
            raise RuntimeError("once")
        await ctx.checkpoint([2, "the last one"])
        return 42

    @app.job(max_retries=3, backoff=Backoff(base=0, cap=0))
    async def rerun(ctx: JobContext) -> None:
        again = ctx.options(on_change="rerun")
        await again.step("changing", lambda n: n, ctx.retry_count % 2)  # A, B, A
        await again.tool("effect", lambda n: n, ctx.retry_count % 2)
        if ctx.retry_count < 2:
            raise RuntimeError("again")

    @app.job
    async def asked(ctx: JobContext) -> None:
        await ctx.approve("ok", title='He said "kind": "x"', payload=None, notify=lambda _: None)

    @app.job
    async def parked(ctx: JobContext) -> None:
        await ctx.step('quoted "key" \\ é', lambda: None)
        await ctx.sleep("night", HOUR)

    @app.job
    async def asking(ctx: JobContext) -> None:
        await ctx.approve("ok", title="May I?", payload={"n": 1})

    @app.job
    async def listening(ctx: JobContext) -> Any:
        return [await ctx.wait_signal("paid", int) for _ in range(2)]

    @app.job
    async def expecting(ctx: JobContext) -> None:
        await ctx.receive("news")

    @app.job
    async def parent(ctx: JobContext) -> None:
        await ctx.wait_for(await ctx.spawn("parked", queue="elsewhere"))

    @app.agent("ann")
    async def answered(ctx: JobContext, message: Message) -> str:
        await ctx.session.get()
        await ctx.session.save({"n": 1})
        return "yes"

    @app.job
    async def failed(ctx: JobContext) -> None:
        raise Fail("no")

    @app.job(max_retries=0)
    async def dead(ctx: JobContext) -> None:
        raise ValueError("no")

    @app.job(backoff=once)
    async def retrying(ctx: JobContext) -> None:
        raise ValueError("later")

    @app.job
    async def snoozing(ctx: JobContext) -> None:
        raise Snooze("1h")

    return app


async def fill(url: str) -> dict[str, UUID]:
    """Make the jobs, most of them by a worker that runs them, and return their ids by name."""
    async with make_app(url) as app:
        handles = {name: await app.enqueue(name) for name in ("completed", "rerun", "asked", "asking", "failed")}
        handles["parked"] = await app.enqueue("parked", tags=["slow"])
        handles |= {name: await app.enqueue(name) for name in ("dead", "retrying", "snoozing")}
        handles["pruned"] = await app.enqueue("completed")
        handles |= {name: await app.enqueue("asking") for name in ("gone", "decided")}
        handles |= {name: await app.enqueue("listening") for name in ("listening", "heard", "paid")}
        for payload in ("none", 1, "none", 2, 3):  # two are refused, the last is pending
            await handles["paid"].signal("paid", payload)
        await handles["listening"].signal("other", 1)
        for name in ("expecting", "received"):
            await app.agents.create(name, kind=name)
            await app.agents.signal(name, "form", 1)
            handles[name] = await app.enqueue("expecting", agent=name)
        handles |= {name: await app.enqueue("parent") for name in ("parent", "joined")}
        handles["answered"] = await app.agents.message("ann", "may I?", session="s")
        worker = await app.worker(linger=0.2, lease=60)
        task = asyncio.create_task(worker.run())
        suspended = {"asked": S.WAITING_FOR_APPROVAL, "gone": S.WAITING_FOR_APPROVAL}
        for name, handle in handles.items():
            await _reached(app, handle.id, suspended.get(name, S_OF[name]))
        await app.approve((await app.approvals.list(job_id=handles["asked"].id)).items[0].id)
        await _reached(app, handles["asked"].id, S.COMPLETED)
        handles["forked"] = await app.jobs.fork(handles["rerun"].id)
        await _reached(app, handles["forked"].id, S.COMPLETED)
        worker.stop(now=True)
        await task
        handles["fork"] = await app.jobs.fork(handles["completed"].id)
        await app.jobs.cancel(handles["gone"].id, "no need")
        await app.approve((await app.approvals.list(job_id=handles["decided"].id)).items[0].id)
        await handles["heard"].signal("paid", 1)
        await app.agents.send("received", "hello", channel="news")
        await app.agents.send("ann", "later", delay=HOUR)
        await app.agents.signal("ann", "form", 2)
        for of, name in (("parent", "child"), ("joined", "ended")):
            handles[name] = app.jobs.handle((await app.jobs.tree(handles[of].id))[1].id)
        await app.jobs.cancel(handles["ended"].id, "no need")
        handles["callback"] = await app.jobs.enqueue_batch(
            [Request("parked", None, {"queue": "elsewhere"})], Request("parked")
        )
        handles["part"] = app.jobs.handle((await app.jobs.tree(handles["callback"].id))[1].id)
        await app.queues.pause("idle")
        await app.queues.resume("idle")
        store = await app.open()
        assert await store.retention.prune([handles["pruned"].id], keep_logs=True) == 1
        ids = {name: handle.id for name, handle in handles.items()} | await _by_hand(store)
        for name, id in ids.items():
            assert (await store.jobs.get_job(id)).status is S_OF[name], name
        return ids


async def _by_hand(store: Store) -> dict[str, UUID]:
    """What no worker leaves behind: jobs in the middle of something."""
    running = await started(store)
    await store.leases.record(
        running, [NewEvent("node_started", '{"key": "now"}')], effects=[patch_state(progress=0.25)]
    )
    await store.jobs.cancel(running.job_id, note=NOTE)
    waiting = await started(store)
    await store.leases.heartbeat([running, waiting], ttl=HOUR)
    until = await later(store, HOUR)
    began = NewEvent("wait_started", f'{{"key": "nap", "kind": "timer", "until": "{until.isoformat()}"}}')
    await store.leases.record(waiting, [began], effects=[open_wait(Wait("nap", "timer", until))])
    await store.leases.set_waiting(waiting, True)
    taken = await started(store)
    await run_out(store, taken)
    await store.leases.reap(worker_id="reaper")
    late = await enqueue(store, delay=HOUR, deadline=await later(store, 0.05))
    async with asyncio.timeout(PATIENCE):
        while not await store.leases.expire():
            await asyncio.sleep(0.005)
    delayed = await enqueue(store, delay=HOUR, priority=9, deadline=await later(store, 2 * HOUR))
    never = await enqueue(store)
    await store.jobs.cancel(never, note=NOTE)
    coded = await started(store, kind="cli.codex")
    await store.files.add_inputs(coded.job_id, [NewFile.of("in.txt", b"in")])
    await store.files.add_outputs(coded, [NewFile.of("out.txt", b"out"), NewFile.of("same.txt", b"in")])
    await store.tool_runs.append_output(coded, [OutputChunk(coded.attempt, 1, "stdout", b"x")])
    now = await store.now()
    record = ToolRun(
        coded.job_id, coded.attempt, "codex", "a", coded.worker_id, now, now, (("out.txt", 3),), CliRun(RunClass.OK)
    )
    await store.leases.record(coded, [NewEvent("tool_run_ended", "{}")], effects=[add_tool_run(record)])
    await store.leases.finish(coded, completed("null", 1.0))
    return await _with_slots(store) | {
        "coded": coded.job_id,
        "running": running.job_id,
        "waiting": waiting.job_id,
        "taken": taken.job_id,
        "late": late,
        "pending": await run_to(store, S.PENDING),
        "delayed": delayed,
        "never": never,
    }


async def _with_slots(store: Store) -> dict[str, UUID]:
    """Jobs with a concurrency key, and tasks: each as it runs and as it waits."""
    queue, key = own_queue(), {"concurrency_key": "k", "max_concurrent": 1}
    ids = {name: await enqueue(store, queue=queue, **key) for name in ("slot", "held")}
    ids["keyed"] = await enqueue(store, queue=own_queue(), concurrency_key="other", max_concurrent=5)
    for id, tool in (("x", "codex"), ("y", "claude")):
        await store.accounts.add_account(Account(id, tool))
    for name, account in (("coding", None), ("task", "x")):
        payload = json.dumps({"prompt": "do it"} | ({"account": account} if account else {}))
        ids[name] = await enqueue(store, queue=queue, kind="cli.codex", payload=payload)
    limits = {"cli.codex": KindLimit(task=TaskKind("codex"))}
    got = await store.leases.claim(
        worker_id="w", queue=queue, kinds={"echo": 3, "cli.codex": 3}, limit=9, ttl=HOUR, limits=limits
    )
    assert {job.id for job in got} == {ids["slot"], ids["coding"]}
    assert (await store.jobs.get_job(ids["held"])).held
    return ids


async def _reached(app: App, id: UUID, status: Status) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await app.jobs.get(id)).status is not status:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def stronger(shell: Shell) -> AsyncIterator[None]:
    """While this lasts no trigger fires, and no constraint holds where one can do without it."""
    if isinstance(shell, PostgresShell):
        await shell.run("set session_replication_role = replica")
        yield
        await shell.run("set session_replication_role = origin")
        return
    assert isinstance(shell, SqliteShell)
    await shell.run("pragma ignore_check_constraints = on")
    triggers = await shell.run("select name, sql from sqlite_master where type = 'trigger' order by rowid")
    for trigger in triggers:
        await shell.run(f"drop trigger {trigger['name']}")
    yield
    for trigger in triggers:
        await shell.run(trigger["sql"])
    await shell.run("pragma ignore_check_constraints = off")


async def fsck(store: Store, *, fix: bool = False) -> list[Finding]:
    """All findings, by way of the client's own loop."""

    async def opened() -> Store:
        return store

    return [finding async for finding in Fsck(opened, fix=fix)]


def report(findings: Sequence[Finding], ids: dict[str, UUID]) -> set[Any]:
    """Code and name of the job of each finding; the code alone where there is no job of ours."""
    names = {id: name for name, id in ids.items()}
    return {f"{f.code} {names.get(f.job_id, '?')}" if f.job_id else f.code for f in findings}
