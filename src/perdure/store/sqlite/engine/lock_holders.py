"""Which process holds a lock on a file, for messages: what /proc tells, and nothing where there is no /proc."""

from __future__ import annotations

import os
import re
from pathlib import Path

_WAL_WRITE_BYTE = 120
"""Of the -shm file: who has it locked is writing to the database."""
_LONGEST_COMMAND = 60
_LINE = re.compile(
    r"\d+: (?P<type>\w+) +\S+ +(?P<access>\w+) +(?P<pid>-?\d+) (?P<device>\w+:\w+):(?P<inode>\d+) (?P<start>\d+)"
)


def holders_of(path: str) -> str:
    """The processes that keep others from writing to this database: 'process 12 (python app.py)'. Empty: nothing is known."""
    in_line = _locking(path + "-lock", "FLOCK", None)
    writing = _locking(os.path.realpath(path) + "-shm", "POSIX", _WAL_WRITE_BYTE)
    others = {pid for pid in in_line | writing if pid != os.getpid() and _command(pid)}
    if not others and any(not _command(pid) for pid in in_line):
        # a child has inherited it from a process that is gone, or its holder is in another container
        others = _having_open(path + "-lock")
    return ", ".join(f"process {pid} ({_described(pid)})" for pid in sorted(others))


def _locking(path: str, type: str, start: int | None) -> set[int]:
    try:
        wanted = _identity(path)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return set()
    pids = set()
    for line in lines:
        found = _LINE.match(line)
        if found is None or found["type"] != type or found["access"] != "WRITE":  # one that waits has an arrow
            continue
        if (found["device"], found["inode"]) == wanted and start in (None, int(found["start"])):
            pids.add(int(found["pid"]))
    return pids


def _identity(path: str) -> tuple[str, str]:
    file = Path(path).stat()
    return f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}", str(file.st_ino)


def _having_open(path: str) -> set[int]:
    """The processes of this user that have the file open, other than this one."""
    pids: set[int] = set()
    try:
        wanted = Path(path).stat()
        processes = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return pids
    for pid in set(processes) - {str(os.getpid())}:
        try:
            for descriptor in os.scandir(f"/proc/{pid}/fd"):
                file = descriptor.stat()
                if (file.st_dev, file.st_ino) == (wanted.st_dev, wanted.st_ino):
                    pids.add(int(pid))
        except OSError:  # it belongs to another user, or has ended
            continue
    return pids


def _described(pid: int) -> str:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        state = ""
    return _command(pid) + (", stopped" if state in ("T", "t") else "")


def _command(pid: int) -> str:
    """Its command line; empty if there is no such process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
    command = " ".join(" ".join(words).split()) or name
    return command if len(command) <= _LONGEST_COMMAND else command[: _LONGEST_COMMAND - 3] + "..."
