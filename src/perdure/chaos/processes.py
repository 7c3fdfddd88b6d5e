"""The processes that are killed, as the process that kills them sees them."""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from perdure.chaos.errors import ChaosFailed

TIMEOUT = 60.0
"""Seconds to wait for what takes milliseconds: the machine may be busy."""


class Child:
    """One process: alive until `exit_code` is set. What it sends through its fork server is in `said`."""

    def __init__(self, server: ForkServer, name: str) -> None:
        self._server = server
        self.name = name
        self.said: list[str] = []
        self._pid: int | None = None
        self._code: int | None = None

    @property
    def pid(self) -> int:
        """Its process id; waits for the fork."""
        self._server.wait_for(lambda: self._pid is not None, f"{self.name} to start")
        assert self._pid is not None
        return self._pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; -9 after SIGKILL."""
        self._server.receive()
        return self._code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        self._server.tell({"signal": number.value, "to": self.name})

    def kill(self) -> None:
        """SIGKILL, also to one that is stopped; waits until it has ended."""
        self.signal(signal.SIGKILL)
        self._server.wait_for(lambda: self._code is not None, f"{self.name} to die")

    def stop(self) -> None:
        """SIGSTOP: it does nothing any more, without noticing it."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def receive(self, message: Mapping[str, Any]) -> None:
        """A message of the fork server about it."""
        if "pid" in message:
            self._pid = message["pid"]
        elif "said" in message:
            self.said.append(message["said"])
        else:
            self._code = message["code"]


class ForkServer:
    """A process that forks others; see `perdure.chaos.fork_server`. A context: at its end all children are dead.

    entry: `module:function`, what a child runs. skew: seconds by which their clocks are wrong. paths: where modules are
    found besides our own path. on_message: called for every message, with the child it is about.
    """

    def __init__(
        self,
        entry: str,
        *,
        skew: float = 0.0,
        paths: tuple[str, ...] = (),
        on_message: Callable[[Child], None] | None = None,
    ) -> None:
        self._command = [sys.executable, "-P", "-m", "perdure.chaos.fork_server", entry, str(skew)]
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*paths, os.environ.get("PYTHONPATH")]))
        self._on_message = on_message
        self._children: dict[str, Child] = {}
        self._unread = b""
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us; the fork server ends when its stdin does
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def fileno(self) -> int:
        """The file descriptor that becomes readable when there is a message."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def start(self, log: Path, text: str) -> Child:
        """Start a child, its output appended to `log`. It is being forked when this returns."""
        name = str(next(self._numbers))
        child = self._children[name] = Child(self, name)
        self.tell({"start": name, "log": str(log), "text": text})
        return child

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send it a message. Raises ChaosFailed if it has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ChaosFailed(f"the fork server has ended: exit code {self._process.wait()}") from None

    def receive(self, wait: float = 0.0) -> bool:
        """Receive messages; False if there was none for `wait` seconds. Raises ChaosFailed if it has ended."""
        if not select.select([self.fileno()], [], [], wait)[0]:
            return False
        got = os.read(self.fileno(), 65536)
        if not got:
            raise ChaosFailed(f"the fork server has ended: exit code {self._process.wait()}")
        *lines, self._unread = (self._unread + got).split(b"\n")
        for line in lines:
            message = json.loads(line)
            name = message.get("started") or message.get("by") or message["ended"]
            child = self._children.pop(name) if "ended" in message else self._children[name]
            child.receive(message)
            if self._on_message is not None:
                self._on_message(child)
        return True

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Receive messages until a condition is true. Raises ChaosFailed after a minute."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            if not self.receive(max(0.0, deadline - time.monotonic())):
                raise ChaosFailed(f"waited {TIMEOUT:g} s for {what}")
