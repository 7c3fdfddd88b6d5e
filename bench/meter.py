"""What a workload costs besides time: processor time of the client and of the database, and bytes of log."""

import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Metered(Protocol):
    """What a meter asks of a place."""

    def server_cpu(self) -> float | None:
        """Seconds of processor time its server processes have used so far; None where there is none of our own, or no /proc."""
        ...

    async def log_bytes(self, url: str) -> int | None:
        """Bytes its write-ahead log has grown to so far; None where that cannot be told."""
        ...


@dataclass
class Meter:
    """What was used between the beginning and the end of a measurement."""

    client: float = 0.0
    server: float | None = None
    log: int | None = None

    def figures(self, workload: str, number: int) -> dict[str, float]:
        """Per job or step, by name."""
        found = {f"{workload}.client_us": self.client / number * 1e6}
        if self.server is not None:
            found[f"{workload}.server_us"] = self.server / number * 1e6
        if self.log is not None:
            found[f"{workload}.wal_bytes"] = self.log / number
        return found


@asynccontextmanager
async def metered(place: Metered, url: str) -> AsyncIterator[Meter]:
    """Measure what is used inside."""
    meter, log, server = Meter(), await place.log_bytes(url), place.server_cpu()
    client = time.process_time()
    yield meter
    meter.client = time.process_time() - client
    if server is not None and (now := place.server_cpu()) is not None:
        meter.server = now - server
    if log is not None and (grown := await place.log_bytes(url)) is not None:
        meter.log = grown - log


def family_cpu(pid: int) -> float | None:
    """Seconds of processor time that a process, its children and those it has buried have used; None without /proc."""
    ticks = 0
    try:
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and (fields := _stat(entry)) and pid in (int(entry.name), int(fields[1])):
                ticks += sum(map(int, fields[11:15] if int(entry.name) == pid else fields[11:13]))
    except OSError:
        return None
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(process: Path) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold blanks; empty where it is gone."""
    try:
        return re.sub(r"^.*\) ", "", (process / "stat").read_text(), flags=re.DOTALL).split()
    except OSError:
        return []
