"""`perdure worker`: run jobs; list and stop workers."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, closing, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli import inputs
from perdure.cli.context import Cli, run_async
from perdure.cli.errors import Exit
from perdure.cli.format import Times, one_line
from perdure.cli.options import command, group
from perdure.cli.output import Column
from perdure.cli.usage_error import Usage
from perdure.config import load_setting
from perdure.model.errors import ToolMissing
from perdure.model.task_payload import KIND_PREFIX
from perdure.model.workers import WorkerInfo
from perdure.operations.accounts import list_accounts
from perdure.operations.errors import NoWorker
from perdure.operations.workers import Asked, Health, drain_worker, health_of, list_workers, stop_worker
from perdure.stop_signals import StopSignals, end_process

if TYPE_CHECKING:
    from perdure import Client, Worker

app = group("Run jobs; list and stop workers.", "perdure worker start --app agents:app")

SomeIds = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="Workers, by id or its last 6 or more characters")
]


@command(
    app,
    "start",
    example="""\
perdure worker start --app agents:app
perdure worker start --app agents:app --queues default,slow --processes 4
perdure worker start --app agents:app --metrics-port 9464 --log-format json
perdure worker start --app agents:app --once""",
)
def start(
    cli: Cli,
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="A,B", help="The queues to serve, '*' for all (PERDURE_QUEUES)")
    ] = None,
    concurrency: Annotated[
        str | None, typer.Option("--concurrency", metavar="N", help="Jobs at once, per process; default 100")
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(
            "--lease",
            metavar="DURATION",
            help="Jobs of a worker without heartbeats are taken over after this; default 30s",
        ),
    ] = None,
    drain_timeout: Annotated[
        str | None,
        typer.Option(
            "--drain-timeout", metavar="DURATION", help="How long a stop waits for running steps; default 30s"
        ),
    ] = None,
    metrics_port: Annotated[
        str | None,
        typer.Option(
            "--metrics-port", metavar="PORT", help="Serve /metrics, /healthz and /readyz there; 0: any that is free"
        ),
    ] = None,
    metrics_host: Annotated[
        str | None, typer.Option("--metrics-host", metavar="HOST", help="On this address; default 127.0.0.1")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option("--log-format", metavar="text|json", help="How to write log lines; default text")
    ] = None,
    tools: Annotated[
        str | None,
        typer.Option("--tools", metavar="A,B", help="Run the tasks of these coding CLIs; without --app: of all"),
    ] = None,
    accounts: Annotated[
        str | None,
        typer.Option("--accounts", metavar="A,B", help="under these accounts, by id or group name; default auto: all"),
    ] = None,
    log_jobs: Annotated[bool, typer.Option("--log-jobs", help="A log line for each attempt that ends")] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            metavar="N",
            help="Number of worker processes; one that crashes is replaced. Without it there is one, which is not",
            min=1,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End as soon as no job is due")] = False,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True, help="Stop when stdin ends")] = False,
) -> int:
    """Run a worker for the handlers of --app, or for tasks of coding CLIs, until a signal or `worker stop` ends it.

    SIGTERM or Ctrl-C: takes no more jobs, lets running steps finish and hands back the other jobs; a second signal does not wait.
    With --processes the first process serves its metrics on PORT, the next on PORT + 1 and so on.
    """
    cli.more_flags = {
        "queues": queues,
        "concurrency": concurrency,
        "lease": lease,
        "drain_timeout": drain_timeout,
        "metrics_port": metrics_port,
        "metrics_host": metrics_host,
        "log_format": log_format,
        "tools": tools,
        "accounts": accounts,
        "log_jobs": log_jobs or None,
    }
    from perdure.cli.logs import json_warnings

    cli.out.logs_json = load_setting("log_format", log_format) == "json"
    with json_warnings() if cli.out.logs_json else nullcontext():
        own = cli.own_app
    served = cli.settings["tools"]
    if served is not None:
        cli.app.serve_tools(*served)
    elif own is None:
        try:
            cli.app.serve_tools()
        except ToolMissing as error:
            raise Usage(
                "no App is given, and no coding CLI is installed whose tasks could be run",
                hint='perdure worker start --app module:attr; or once: PERDURE_APP, or app = "module:attr" in perdure.toml. '
                f"For tasks {error.hint}",
            ) from None
    if own is None:
        names = ", ".join(kind.removeprefix(KIND_PREFIX) for kind in cli.app.registry.kinds)
        cli.out.note(f"no App is given (--app module:attr): only tasks of {names} are run")
    elif not len(own.registry):
        raise Usage(f"the App {cli.settings['app']} has no handlers", hint="a handler is a function under @app.job")
    if processes is not None:
        from perdure.cli.supervisor import Supervisor, check_ports

        options = {k.replace("_", "-"): v for k, v in cli.more_flags.items() if v is not None and k != "log_jobs"}
        check_ports(cli.app, processes)
        return run_async(Supervisor(cli, processes, options, once=once, log_jobs=log_jobs).run())
    from perdure.runtime.gc_tuning import tuned_for_worker

    with tuned_for_worker():
        return run_async(_work(cli, once=once, supervised=supervised), fast=True)


async def _work(cli: Cli, *, once: bool, supervised: bool) -> int:
    server = cli.app.status_server()  # before anything is made: its port may be taken
    with nullcontext() if server is None else closing(server):
        async with cli.client(creates=True, works=True) as client:
            await _say_unknown_accounts(cli, client)
            worker = await cli.app.worker()
            worker.may_end_process()
            if supervised:
                from perdure.cli.supervisor import say_ready

                say_ready()
            code = await _serve(cli, worker, cli.app.serving(server, worker), once=once, supervised=supervised)
    if worker.worn_out:
        cli.out.warn("too many calls hang in this process: its jobs are handed back, and it is to be replaced")
    if worker.unfinished:
        end_process(code)  # the event loop would wait for them
    return code


async def _say_unknown_accounts(cli: Cli, client: Client) -> None:
    """Accounts that `--accounts` names may be added later; a task for a name that is written wrongly would never start."""
    served = cli.settings["accounts"]
    if served == ("auto",):
        return
    known = {name for info in await list_accounts(client) for name in (info.account.id, info.account.group_name)}
    if missing := [name for name in served if name not in known]:
        cli.out.warn(f"--accounts: no account has the id or group name {', '.join(missing)} yet")


async def _serve(
    cli: Cli, worker: Worker, serving: AbstractAsyncContextManager[None], *, once: bool, supervised: bool
) -> int:
    loop = asyncio.get_running_loop()

    def stop(number: int, count: int) -> None:  # noqa: ARG001  the same for all signals
        if count == 1 and not supervised:
            cli.out.note(f"stopping; {worker.busy} running. Press Ctrl-C again to stop at once")
        worker.stop(now=count > 1)

    with StopSignals(stop, last_words=worker.hand_back_blocked) as signals:
        if supervised:
            loop.add_reader(sys.stdin.fileno(), _parent_gone, worker)
        try:
            async with serving:
                await worker.run(once=once)
        finally:
            if supervised:
                loop.remove_reader(sys.stdin.fileno())
    if len(signals.received) > 1:
        return 128 + signals.received[-1]
    return Exit.HUNG if worker.worn_out else Exit.OK


def _parent_gone(worker: Worker) -> None:
    """The supervisor holds the other end of our stdin: end of file means that the supervisor ended."""
    if not os.read(sys.stdin.fileno(), 100):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        worker.stop()


HEALTH = {
    Health.RUNNING: ("● running", "green"),
    Health.DRAINING: ("◔ draining", "yellow"),
    Health.LOST: ("✕ lost", "red"),
    Health.STOPPED: ("○ stopped", "dim"),
}


def columns(times: Times) -> list[Column[WorkerInfo]]:
    """The columns of `worker status`."""
    return [
        Column("state", lambda w: HEALTH[health_of(w)]),
        Column("worker", lambda w: w.id, least=12),
        Column("held", lambda w: f"{w.held}/{w.concurrency}", right=True),
        Column(
            "slots", lambda w: " ".join(f"{account}:{n}" for account, n in sorted(w.accounts.items())), flexible=True
        ),
        Column("hung", lambda w: str(w.hung), right=True),
        Column("blocked", lambda w: str(w.blocked), right=True),
        Column("heartbeat", lambda w: times.show(w.heartbeat_at), right=True),
        Column("queues", lambda w: ",".join(w.queues), flexible=True),
        Column("kinds", lambda w: ",".join(w.kinds), flexible=True),
        Column("host", lambda w: w.host, flexible=True),
        Column("pid", lambda w: str(w.pid), right=True),
        Column("version", lambda w: w.version or "", flexible=True),
        Column("started", lambda w: times.show(w.started_at), wide=True, right=True),
    ]


@command(app, "status", example="perdure worker status")
async def status(
    cli: Cli,
    stopped: Annotated[bool, typer.Option("--stopped", help="Also those that have stopped")] = False,
) -> None:
    """List the workers on this database: whether they are alive, how many jobs they hold, under which accounts of coding CLIs."""
    async with cli.client() as client:
        found = await list_workers(client, include_stopped=stopped)
    cli.out.rows(found, columns(cli.out.times), id=lambda w: w.id)
    if not found and cli.out.for_people:
        cli.out.note(f"no worker runs; start one: {cli.next('worker start --app module:attr')}")


command(app, "ls", example="perdure worker ls", hidden=True)(status)


@command(app, "stop", example="perdure worker stop\nperdure worker stop 766d31\nperdure worker stop --all --now")
async def stop(
    cli: Cli,
    ids: SomeIds = None,
    all: Annotated[bool, typer.Option("--all", help="Every worker, on all hosts")] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Do not wait for running steps: they are cancelled and run again")
    ] = False,
) -> int:
    """Ask workers to stop: they finish running steps, hand back their other jobs and end. Without an id: all on this host."""
    host = None if ids or all else socket.gethostname()
    return await _ask(
        cli, ids or [], lambda client, worker: stop_worker(client, worker, all=all, host=host, now=now), all=all
    )


@command(app, "drain", example="perdure worker drain\nperdure worker drain --all")
async def drain(
    cli: Cli,
    ids: SomeIds = None,
    all: Annotated[bool, typer.Option("--all", help="Every worker, on all hosts")] = False,
) -> int:
    """Ask workers to take no more jobs and to end when they hold none. Today this is the same as `worker stop`."""
    host = None if ids or all else socket.gethostname()
    return await _ask(cli, ids or [], lambda client, worker: drain_worker(client, worker, all=all, host=host), all=all)


async def _ask(cli: Cli, ids: list[str], ask: Callable[[Client, str | None], Awaitable[Asked]], *, all: bool) -> int:
    if all and ids:
        raise Usage("give ids or --all, not both")
    async with cli.client() as client:
        if ids:
            done, code = await cli.each(inputs.ids_given(ids, "a worker"), lambda worker: ask(client, worker))
        else:
            try:
                done, code = [await ask(client, None)], Exit.OK
            except NoWorker as error:
                error.hint = f"those on all hosts, and that have stopped: {cli.next('worker status --stopped')}"
                raise
    asked = [(id, answer.command.value) for answer in done for id in answer.worker_ids]
    if not asked and all:
        cli.out.note("no worker runs")
    for id, what in asked if cli.out.for_people else ():
        print(f"asked {one_line(id)} to {what.replace('_', ' ')}")
    if not cli.out.for_people:
        cli.out.rows([{"id": id, "command": what} for id, what in asked], [], id=lambda r: r["id"], plain=dict)
    return code
