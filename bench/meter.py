"""Processor time of the client and of the database, and bytes of its log, for each job or step."""

import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Metered(Protocol):
    """What a meter asks of a target."""

    has_server: bool
    """Whether part of the work is done by processes of a database server."""

    async def server_cpu(self) -> float | None:
        """Seconds of processor time that the server's processes have used so far; None where that cannot be read."""
        ...

    async def log_bytes(self, url: str) -> int | None:
        """Bytes its write-ahead log has grown to so far; None where that is not known."""
        ...


@dataclass
class Meter:
    """What was used between the beginning and the end of a measurement, in seconds and bytes."""

    client: float = 0.0
    server: float | None = None
    """None where it cannot be read; 0 where there is no server."""
    log: int | None = None

    def figures(self, name: str, number: int) -> dict[str, float]:
        """Microseconds and bytes for each of `number` jobs or steps: `cpu_us` is client and server together."""
        found = cpu_figures(f"{name}.", self.client, self.server, number)
        if self.log is not None:
            found[f"{name}.wal_bytes"] = self.log / number
        return found


def cpu_figures(prefix: str, client: float, server: float | None, number: int) -> dict[str, float]:
    """Microseconds of processor time for each of `number` jobs or steps: both together, client and server."""
    found = {}
    if server is not None:
        found[f"{prefix}cpu_us"] = (client + server) / number * 1e6
    found[f"{prefix}client_us"] = client / number * 1e6
    if server is not None:
        found[f"{prefix}server_us"] = server / number * 1e6
    return found


@asynccontextmanager
async def metered(target: Metered, url: str) -> AsyncIterator[Meter]:
    """Measure what is used inside, by this process and by the server."""
    meter, log, server = Meter(), await target.log_bytes(url), await target.server_cpu()
    client = time.process_time()
    yield meter
    meter.client = time.process_time() - client
    if not target.has_server:
        meter.server = 0.0
    elif server is not None and (now := await target.server_cpu()) is not None:
        meter.server = now - server
    if log is not None and (grown := await target.log_bytes(url)) is not None:
        meter.log = grown - log


def family_cpu(pid: int) -> float | None:
    """Seconds of processor time that a process, its children and those that have ended have used; None without /proc."""
    ticks = 0
    try:
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and (fields := _stat(entry)) and pid in (int(entry.name), int(fields[1])):
                ticks += sum(map(int, fields[11:15] if int(entry.name) == pid else fields[11:13]))
    except OSError:
        return None
    return ticks / os.sysconf("SC_CLK_TCK")


def parent_of(pid: int, name: str) -> int | None:
    """The parent of a process of that name; None where this machine has no such process."""
    process = Path(f"/proc/{pid}")
    try:
        if (process / "comm").read_text().strip() != name:
            return None
    except OSError:
        return None
    fields = _stat(process)
    return int(fields[1]) if fields else None


def _stat(process: Path) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold blanks; empty where it is gone."""
    try:
        return re.sub(r"^.*\) ", "", (process / "stat").read_text(), flags=re.DOTALL).split()
    except OSError:
        return []
