"""The mother of the processes that are killed: everything is imported once, each child is a fork of it.

Lines on stdin: `start LOG ORDERS`, `signal PID NUMBER`. Lines on stdout: `started PID`, `ended PID CODE` (-9 after SIGKILL).
When stdin ends, by whatever means, every child is killed: none outlives the tests.
"""

import os
import random
import select
import signal
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

import perdure.store.postgres.store
import perdure.store.sqlite.store  # noqa: F401  the stores are imported here, not in each child
from tests.crash import apps
from tests.crash.child import Orders


def main() -> None:
    living: set[int] = set()
    unread = b""
    try:
        while True:
            if select.select([0], [], [], 0.02)[0]:
                got = os.read(0, 65536)
                if not got:
                    return
                *lines, unread = (unread + got).split(b"\n")
                for line in lines:
                    _obey(line.decode(), living)
            _bury(living)
    finally:
        for pid in living:
            os.kill(pid, signal.SIGKILL)


def _obey(line: str, living: set[int]) -> None:
    verb, subject, rest = line.split(" ", 2)
    if verb == "start":
        pid = os.fork()
        if pid == 0:
            _grow_up(subject, rest)
        living.add(pid)
        _say(f"started {pid}")
    elif int(subject) in living:  # not buried yet, so the number is still its own
        os.kill(int(subject), int(rest))


def _bury(living: set[int]) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            living.discard(ended[0])
            _say(f"ended {ended[0]} {os.waitstatus_to_exitcode(ended[1])}")


def _say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def _grow_up(log: str, text: str) -> NoReturn:
    """Become a process of its own; never returns."""
    code = 1
    try:
        orders = Orders.read(text)
        nothing, stream = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for old, new in ((nothing, 0), (stream, 1), (stream, 2)):
            os.dup2(old, new)
        os.chdir(orders.place)
        if orders.skew or orders.fresh:
            os.execv(sys.executable, [sys.executable, "-m", "tests.crash.child", text])
        random.seed()
        apps.obey(orders)
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


if __name__ == "__main__":
    main()
