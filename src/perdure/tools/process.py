"""One run of a program under the launcher: its streams, its deadlines, its end."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import marshal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from perdure.tools import launcher
from perdure.tools.adapters.base import Stream
from perdure.tools.cgroups import Group
from perdure.tools.leftovers import MARK, end_run
from perdure.tools.settings import Limits

PIECE = 256 * 1024
DRAIN_SECONDS = 5.0
"""After the end of every process of the run its streams end at once, unless a process outside the tree holds them."""
END_SECONDS = launcher.KILL_SECONDS + 5.0

OnData = Callable[[Stream, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Order:
    """What the launcher starts. confine: Landlock rules (see launcher.confine), None for none. groups: cgroups that are made for
    it and removed at its end. mark: no other run of this machine has it; it is in the environment of every process of the run.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    limits: Limits
    nice: int = 0
    confine: Mapping[str, Any] | None = None
    soft_signal: str = "TERM"
    groups: tuple[Group, ...] = ()
    mark: str = field(default_factory=lambda: uuid4().hex)

    def line(self) -> bytes:
        """As the launcher reads it."""
        fields: dict[str, Any] = {
            "argv": self.argv,
            "env": {**self.env, MARK: self.mark},
            "cwd": str(self.cwd),
            "limits": asdict(self.limits),
            "nice": self.nice,
            "confine": self.confine,
            "soft_signal": self.soft_signal,
            "groups": [group._asdict() for group in self.groups],
        }
        return marshal.dumps(fields).hex().encode() + b"\n"


class Report(NamedTuple):
    """How it ended. exit_code: negative for a signal; None if the launcher itself was killed. error: why it did not start.
    memory_kills: processes that were killed because the run reached its memory limit."""

    exit_code: int | None
    error: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    max_rss_bytes: int = 0
    survivors: int = 0
    memory_kills: int = 0


class Running:
    """A running program. `soft` asks it to end, `kill` ends it with every process below it, `kill_launcher` is for a launcher
    that does not do so, as one that the program has stopped."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket) -> None:
        self._process = process
        self._control = control

    def soft(self) -> None:
        """Ask the program to end."""
        self._send(b"soft\n")

    def kill(self) -> None:
        """Kill the program and every process that it started."""
        self._send(b"kill\n")

    def kill_launcher(self) -> None:
        """Kill the launcher; `run` ends what it leaves."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _send(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            self._control.send(line)


async def run(order: Order, stdin: bytes, on_data: OnData, on_running: Callable[[Running], None]) -> Report:
    """Start the program, give it `stdin`, pass on what it prints, and return when every process of it is gone.

    A cancelled call has killed all of them when it ends. `on_data` slows the program down: nothing is read while it runs.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", launcher.__file__, str(theirs.fileno())),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={},
                limit=PIECE,
            )
    except BaseException:
        ours.close()
        raise
    ours.setblocking(False)
    running = Running(process, ours)
    try:
        await asyncio.get_running_loop().sock_sendall(ours, order.line())
        on_running(running)
        streams = {asyncio.ensure_future(work) for work in _streams(process, stdin, on_data)}
        report = asyncio.ensure_future(_report(ours))
        try:
            left = {report, *streams}
            while report in left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for failed in done - {report}:
                    failed.result()  # what `on_data` raised ends the run
            if report.result().exit_code is None:  # something killed the launcher, which can then kill nothing
                await asyncio.to_thread(end_run, order.mark, order.groups)
            if left:
                done, _ = await asyncio.wait(left, timeout=DRAIN_SECONDS)
                for failed in done:
                    failed.result()
        finally:
            for work in (report, *streams):
                work.cancel()
            await asyncio.gather(report, *streams, return_exceptions=True)
        return report.result()
    finally:
        ours.close()  # for the launcher this is an order to kill
        await _gone(process)
        if process.returncode != 0:
            await asyncio.to_thread(end_run, order.mark, order.groups)


def _streams(process: asyncio.subprocess.Process, stdin: bytes, on_data: OnData) -> list[Coroutine[Any, Any, None]]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    return [
        _write(process.stdin, stdin),
        _read(process.stdout, "stdout", on_data),
        _read(process.stderr, "stderr", on_data),
    ]


async def _write(pipe: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # the program may end without having read it
        pipe.write(data)
        await pipe.drain()
    pipe.close()
    with contextlib.suppress(ConnectionError):
        await pipe.wait_closed()


async def _read(pipe: asyncio.StreamReader, stream: Stream, on_data: OnData) -> None:
    while data := await pipe.read(PIECE):
        await on_data(stream, data)


async def _report(control: socket.socket) -> Report:
    """The launcher's last line; a report without an exit code if it was killed before it could write one."""
    loop = asyncio.get_running_loop()
    received = b""
    with contextlib.suppress(OSError):
        while piece := await loop.sock_recv(control, 1 << 16):
            received += piece
    try:
        return Report(**ast.literal_eval(received.decode("ascii")))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return Report(None, "the launcher was killed")


async def _gone(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of the launcher, also when this task is cancelled meanwhile."""
    waiting = asyncio.ensure_future(_wait(process))
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _wait(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
