"""A process that forks the processes that are killed: `python -m perdure.chaos.fork_server MODULE:FUNCTION [SECONDS]`.

Everything is imported once and each child is a fork: a real process with its own pid, which starts in milliseconds; a new
interpreter would need half a second. A child calls FUNCTION(text, say). SECONDS: by this much the clocks
of all children are wrong.

Messages are lines of JSON. In: {"start": NAME, "log": FILE, "text": TEXT}, {"signal": NUMBER, "to": NAME}.
Out: {"started": NAME, "pid": PID}, {"said": WORDS, "by": NAME}, {"ended": NAME, "code": CODE} (-9 after SIGKILL).

No child outlives the server. When its stdin ends, it kills all children. When the server itself is killed, each child sees the
end of a pipe whose other end only the server holds. A stopped child cannot see that, but each is a process group of the server's
session, and the kernel sends SIGHUP and SIGCONT to stopped groups that become orphans.
"""

from __future__ import annotations

import gc
import json
import os
import random
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

Say = Callable[[str], None]
Entry = Callable[[str, Say], object]
"""What a child runs. It gets the text it was started with, and a function that sends a text to the process that started it."""


class Server:
    """Forks children, sends them signals, and reports when they end."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._running: dict[int, str] = {}
        self._named: dict[str, int] = {}
        self._out = os.dup(1)
        self._lifeline, self._held = os.pipe()
        self._woken, self._waker = os.pipe()
        for end in (self._woken, self._waker):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Until stdin ends."""
        unread = b""
        try:
            while True:
                ready = select.select([0, self._woken], [], [])[0]
                if self._woken in ready:
                    os.read(self._woken, 4096)
                    self._reap()
                if 0 in ready:
                    got = os.read(0, 65536)
                    if not got:
                        return
                    *lines, unread = (unread + got).split(b"\n")
                    for line in lines:
                        self._handle(json.loads(line))
        finally:
            for pid in self._running:
                os.kill(pid, signal.SIGKILL)

    def _handle(self, request: dict[str, Any]) -> None:
        if "start" in request:
            self._start(request["start"], request["log"], request["text"])
        elif request["to"] in self._named:  # not reaped yet, so the pid is still its own
            os.kill(self._named[request["to"]], request["signal"])

    def _start(self, name: str, log: str, text: str) -> None:
        pid = os.fork()
        if pid == 0:
            self._run_child(name, log, text)
        self._running[pid] = name
        self._named[name] = pid
        self._send({"started": name, "pid": pid})

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                name = self._running.pop(ended[0])
                del self._named[name]
                self._send({"ended": name, "code": os.waitstatus_to_exitcode(ended[1])})

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # the other process is gone, so stdin ends as well
            os.write(self._out, json.dumps(message).encode() + b"\n")

    # -- in the child ---------------------------------------------------------------------------------------------------

    def _run_child(self, name: str, log: str, text: str) -> NoReturn:
        """Run in the child; never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setpgid(0, 0)
            for end in (self._held, self._woken, self._waker):
                os.close(end)
            threading.Thread(target=_die_with, args=(self._lifeline,), name="lifeline", daemon=True).start()
            nothing = os.open(os.devnull, os.O_RDONLY)
            stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            for old, new in ((nothing, 0), (stream, 1), (stream, 2)):
                os.dup2(old, new)
            random.seed()
            self._entry(text, lambda words: self._send({"said": words, "by": name}))
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:  # noqa: BLE001  it is logged, and a child must not continue as the server
            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _die_with(lifeline: int) -> None:
    """Nothing is ever written to the pipe: the read returns at its end."""
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def main(entry: str, seconds: str = "0") -> None:
    """Import what the children need, then serve."""
    if float(seconds):
        from perdure.chaos.clocks import skew_clocks

        skew_clocks(float(seconds))
    module, _, function = entry.partition(":")
    run: Entry = getattr(import_module(module), function)
    gc.collect()
    gc.freeze()  # garbage collection in a child must not copy all pages of the server
    Server(run).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
