"""Limits on all processes of a run together, by cgroups: where the kernel and the administrator of this machine let a worker
make some.

Version 2: a folder that was delegated to the worker, with the controllers `memory` and `pids`. Version 1: one folder for each of
the two. Groups are made below these folders, one for each run, and removed at its end.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

MEMORY = ("memory.max", "memory.limit_in_bytes")
SWAP = ("memory.swap.max", "memory.memsw.limit_in_bytes")
PIDS = ("pids.max",)


class Group(NamedTuple):
    """A cgroup of one run. path: its folder. limits: what is written to which of its files."""

    path: str
    limits: dict[str, str]


class Delegated(NamedTuple):
    """Where a worker may make groups. memory, pids: the folder and the file in a group that has the limit; None where that
    limit cannot be set. swap: whether a group limits swap as well."""

    memory: tuple[str, str] | None = None
    pids: tuple[str, str] | None = None
    swap: str | None = None

    def groups(self, mark: str, *, memory: int | None = None, pids: int | None = None) -> tuple[Group, ...]:
        """The groups of the run with this mark: one, or one for each limit. Limits that cannot be set are left out."""
        found: dict[str, dict[str, str]] = {}
        if self.memory is not None and memory is not None:
            limits = found.setdefault(self.memory[0], {})
            limits[self.memory[1]] = str(memory)
            if self.swap is not None:  # version 1 counts memory with swap, version 2 swap alone
                limits[self.swap] = "0" if self.swap == SWAP[0] else str(memory)
        if self.pids is not None and pids is not None:
            found.setdefault(self.pids[0], {})[self.pids[1]] = str(pids)
        return tuple(Group(f"{folder}/{name_of(mark)}", limits) for folder, limits in found.items())


def name_of(mark: str) -> str:
    """The name of the groups of the run with this mark."""
    return f"perdure-{hashlib.sha256(mark.encode()).hexdigest()[:16]}"


def delegated(folders: Iterable[str]) -> Delegated:
    """What can be limited in groups below these folders, found out by making one in each."""
    found = Delegated()
    for folder in folders:
        if found.memory is None or found.pids is None:
            found = _looked_into(folder, found)
    return found


def _looked_into(folder: str, found: Delegated) -> Delegated:
    for controller in ("+memory", "+pids"):
        with contextlib.suppress(OSError), Path(folder, "cgroup.subtree_control").open("r+") as file:
            file.write(controller)  # version 1 has no such file; a group with processes of its own refuses
    probe = Path(folder, name_of(f"probe {os.getpid()}"))
    try:
        probe.mkdir()
    except OSError:
        return found
    try:
        names = {entry.name for entry in probe.iterdir() if os.access(entry, os.W_OK)}
    finally:
        with contextlib.suppress(OSError):
            probe.rmdir()
    if "cgroup.procs" not in names:
        return found
    for name in MEMORY:
        if found.memory is None and name in names:
            swap = SWAP[MEMORY.index(name)]
            found = found._replace(memory=(folder, name), swap=swap if swap in names else None)
    if found.pids is None and PIDS[0] in names:
        found = found._replace(pids=(folder, PIDS[0]))
    return found


def own_folders() -> tuple[str, ...]:
    """The folders of version 2 that were delegated to this process: the parent of its own group, if the process was put into a
    group below the delegated one (`DelegateSubgroup=` of systemd), and its own."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return ()
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    root = next((words[4] for words in mounts if words[words.index("-") + 1] == "cgroup2" and words[3] == "/"), None)
    if own is None or root is None or own == "/":
        return ()
    group = Path(root, own.lstrip("/"))
    return tuple(str(folder) for folder in (group.parent, group) if _is_delegated(folder))


def _is_delegated(folder: Path) -> bool:
    """Whether it is ours: to root everything is writable, so there systemd's mark is asked for."""
    if not all(os.access(folder / name, os.W_OK) for name in (".", "cgroup.procs", "cgroup.subtree_control")):
        return False
    if os.geteuid() != 0:
        return True
    for name in ("trusted.delegate", "user.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def left_in(groups: Sequence[Group]) -> list[int]:
    """The processes that are in these groups."""
    found: list[int] = []
    for group in groups:
        with contextlib.suppress(OSError):
            found += map(int, Path(group.path, "cgroup.procs").read_text().split())
    return found
