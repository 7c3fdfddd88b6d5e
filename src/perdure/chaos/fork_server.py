"""The mother of the processes that are killed: `python -m perdure.chaos.fork_server MODULE:FUNCTION [SECONDS]`.

Everything is imported once and each child is a fork: a real process with a pid and a fate of its own, which costs
milliseconds where an interpreter would cost half a second. A child calls FUNCTION(text, say). SECONDS: by so much the clocks
of all children are wrong.

Messages are lines of JSON. In: {"start": NAME, "log": FILE, "text": TEXT}, {"signal": NUMBER, "to": NAME}.
Out: {"started": NAME, "pid": PID}, {"said": WORDS, "by": NAME}, {"ended": NAME, "code": CODE} (-9 after SIGKILL).

No child outlives her. When her stdin ends, by whatever means, she kills them all. When she is killed herself, each child
learns of it from a pipe whose other end she alone holds; one that is stopped cannot, but as each is a process group of her
session, the kernel hangs up on groups that lose their last link to it, and wakes them for that.
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
"""What a child does: with the text it was started with, and a way to say something to whoever started it."""


class Mother:
    """Forks children, passes signals on, and tells of their ends."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._living: dict[int, str] = {}
        self._named: dict[str, int] = {}
        self._news = os.dup(1)
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
                    self._bury()
                if 0 in ready:
                    got = os.read(0, 65536)
                    if not got:
                        return
                    *lines, unread = (unread + got).split(b"\n")
                    for line in lines:
                        self._obey(json.loads(line))
        finally:
            for pid in self._living:
                os.kill(pid, signal.SIGKILL)

    def _obey(self, order: dict[str, Any]) -> None:
        if "start" in order:
            self._start(order["start"], order["log"], order["text"])
        elif order["to"] in self._named:  # not buried yet, so the number is still its own
            os.kill(self._named[order["to"]], order["signal"])

    def _start(self, name: str, log: str, text: str) -> None:
        pid = os.fork()
        if pid == 0:
            self._grow_up(name, log, text)
        self._living[pid] = name
        self._named[name] = pid
        self._say({"started": name, "pid": pid})

    def _bury(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                name = self._living.pop(ended[0])
                del self._named[name]
                self._say({"ended": name, "code": os.waitstatus_to_exitcode(ended[1])})

    def _say(self, message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # nobody listens any more: stdin ends as well
            os.write(self._news, json.dumps(message).encode() + b"\n")

    # -- in the child ---------------------------------------------------------------------------------------------------

    def _grow_up(self, name: str, log: str, text: str) -> NoReturn:
        """Become a process of its own; never returns."""
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
            self._entry(text, lambda words: self._say({"said": words, "by": name}))
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:  # noqa: BLE001  it is told, and no child may go on as if it were the mother
            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _die_with(lifeline: int) -> None:
    """Nothing is ever written there: what is read is its end."""
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def main(entry: str, seconds: str = "0") -> None:
    """Import what the children need, then serve."""
    if float(seconds):
        from perdure.chaos.clocks import bend_clocks

        bend_clocks(float(seconds))
    module, _, function = entry.partition(":")
    run: Entry = getattr(import_module(module), function)
    gc.collect()
    gc.freeze()  # a child that collects garbage must not copy all of its mother's pages
    Mother(run).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
