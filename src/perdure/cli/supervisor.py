"""`worker start --processes N`: N worker processes, restarted and stopped together."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from typing import TYPE_CHECKING

from perdure.cli.context import Cli
from perdure.cli.errors import Exit

if TYPE_CHECKING:
    from perdure import App

STABLE_AFTER = 60.0
"""A child that ran this long is replaced at once when it ends: it was not the start that failed."""
LONGEST_PAUSE = 30.0
MOST_FAILED_STARTS = 5
"""After so many failed starts in a row all are stopped, unless the database cannot be reached."""
READY_FD = "_PERDURE_READY_FD"
"""The variable that tells a child where to write that it is ready: one that ended before is a failed start. One that was ready
may have been ended by a job, which is no reason to start no more."""


def check_ports(app: App, processes: int) -> None:
    """See that every child will find its port for metrics free: the first has `metrics_port`, each other the next.

    Raises PortTaken, ExtraMissing, ConfigError.
    """
    first = app.status_server()
    if first is None:
        return
    first.close()
    from perdure.observe.status_server import StatusServer

    host, port = app.settings["metrics_host"], app.settings["metrics_port"]
    for other in range(1, processes if port else 1):
        StatusServer(host, port + other).close()


class Supervisor:
    """Runs `perdure worker start` N times. The children sit in process groups of their own, so that a Ctrl-C of the terminal
    reaches them only through us; each watches its stdin, whose other end is ours, so that none runs on without us."""

    def __init__(self, cli: Cli, processes: int, options: dict[str, str], *, once: bool, log_jobs: bool) -> None:
        self._cli = cli
        self._number = processes
        self._argv = [sys.executable, "-m", "perdure", "worker", "start", "--supervised"]
        flags = cli.flags
        options = {"db": flags.db or "", "tenant": flags.tenant or "", "app": flags.app or "", **options}
        options["color"] = flags.color or ""
        options.pop("metrics-port", None)  # each has one of its own
        self._argv += [f"--{name}={value}" for name, value in options.items() if value]
        self._argv += (
            ["--once"] * once + ["--log-jobs"] * log_jobs + ["--quiet"] * flags.quiet + ["--verbose"] * flags.verbose
        )
        self._children: set[Process] = set()
        self._stopping = asyncio.Event()
        self._signals: list[int] = []
        self._code = int(Exit.OK)

    async def run(self) -> int:
        """Run until every child has ended; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        self._cli.out.note("1 worker process" if self._number == 1 else f"{self._number} worker processes")
        await asyncio.gather(*(self._keep(slot) for slot in range(1, self._number + 1)))
        return 128 + self._signals[-1] if len(self._signals) > 1 else self._code

    def _on_signal(self, number: int) -> None:
        self._signals.append(number)
        if len(self._signals) == 1:
            self._cli.out.note(f"stopping {len(self._children)} worker processes. Press Ctrl-C again to stop at once")
        self._stop(signal.SIGKILL if len(self._signals) > 2 else signal.SIGTERM)

    def _stop(self, number: int) -> None:
        self._stopping.set()
        for child in self._children:
            if child.returncode is None:
                child.send_signal(number)

    async def _keep(self, slot: int) -> None:
        pause, failures = 1.0, 0
        while not self._stopping.is_set():
            began = time.monotonic()
            code, ready = await self._child(slot)
            ran = time.monotonic() - began
            if code == 0 or self._stopping.is_set():
                return  # it was asked to stop, or no job is due
            failures = 0 if ready else failures + 1
            if code == Exit.USAGE or (failures >= MOST_FAILED_STARTS and code != Exit.UNREACHABLE):
                self._give_up(slot, code)
                return
            pause = 1.0 if ready or ran > STABLE_AFTER else min(pause * 2, LONGEST_PAUSE)
            self._cli.out.warn(f"worker process {slot} {_ended(code)}; another one starts in {pause:g} s")
            try:
                await asyncio.wait_for(self._stopping.wait(), pause)
            except TimeoutError:
                continue

    async def _child(self, slot: int) -> tuple[int, bool]:
        """Run a child to its end; returns its exit code, and whether it had become ready."""
        port = self._cli.settings["metrics_port"]
        metrics = () if port is None else (f"--metrics-port={port and port + slot - 1}",)
        ours, theirs = os.pipe()
        try:
            child = await asyncio.create_subprocess_exec(
                *self._argv,
                *metrics,
                stdin=PIPE,
                process_group=0,
                pass_fds=(theirs,),
                env={**os.environ, READY_FD: str(theirs)},
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._children.add(child)
        if self._stopping.is_set():
            child.terminate()
        try:
            code = await child.wait()
        finally:
            self._children.discard(child)
            ready = _said_ready(ours)
        return code, ready

    def _give_up(self, slot: int, code: int) -> None:
        if self._code == Exit.OK:
            self._code = code if code > 0 else Exit.FAILURE
            self._cli.out.warn(f"worker process {slot} {_ended(code)}; it is not started again")
        self._stop(signal.SIGTERM)


def say_ready() -> None:
    """Called in a worker process that has begun to work: its supervisor, if it has one, reads that."""
    number = os.environ.pop(READY_FD, None)
    if number is not None:
        os.write(int(number), b"r")
        os.close(int(number))


def _said_ready(pipe: int) -> bool:
    """Whether there is something in the pipe, which is then closed."""
    os.set_blocking(pipe, False)
    try:
        return bool(os.read(pipe, 1))
    except BlockingIOError:  # a process that it started has the other end, too
        return False
    finally:
        os.close(pipe)


def _ended(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
