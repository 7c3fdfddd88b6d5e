"""What is left of a run whose launcher was killed, which could then end nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from perdure.tools.cgroups import Group, left_in
from perdure.tools.launcher import KILL_SECONDS, remove_groups

MARK = "PERDURE_RUN"
"""A variable in the environment of every process of a run: by it they are found even if the launcher was killed."""


def end_run(mark: str, groups: Sequence[Group] = ()) -> int:
    """Kill every process that has this mark in its environment or is in one of these cgroups, which are removed then; how many
    there were. Linux only."""
    if not sys.platform.startswith("linux"):
        return 0
    wanted, killed = f"{MARK}={mark}".encode(), set[int]()
    until = time.monotonic() + KILL_SECONDS
    while found := [*_marked(wanted), *left_in(groups)]:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        if time.monotonic() > until:
            break
    remove_groups([group._asdict() for group in groups])
    return len(killed)


def _marked(wanted: bytes) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found
