"""Which limits on a whole run work on this machine: found out by running programs that must meet them."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

from perdure.tools.cgroups import Delegated, delegated, own_folders
from perdure.tools.process import Order, Report, run
from perdure.tools.settings import MIB, Limits

PROBE_SECONDS = 15.0
PROBE_MEMORY = 48 * MIB
PROBE_PROCESSES = 4

_PYTHON = str(Path(sys.executable).resolve())
_ALLOCATE = f"x = bytearray({2 * PROBE_MEMORY}); print('allocated')"
_FORK = f"""
import os, time
try:
    for _ in range({4 * PROBE_PROCESSES}):
        if os.fork() == 0:
            time.sleep(60)
except OSError:
    print("refused")
"""

_found: dict[tuple[str, ...], Delegated] = {}


async def cgroups(folders: tuple[str, ...] = ()) -> Delegated:
    """What can be limited in groups below these folders, or below those that were delegated to this process where none is given.
    Tried once per process."""
    if folders not in _found:
        _found[folders] = await _tried(delegated(folders or own_folders())) if sys.platform == "linux" else Delegated()
    return _found[folders]


async def _tried(here: Delegated) -> Delegated:
    """What of this really holds."""
    if here.memory is not None:
        report, _ = await _run(here, _ALLOCATE, memory=PROBE_MEMORY)
        if report is None or not report.memory_kills:
            here = here._replace(memory=None)
    if here.pids is not None:
        _, printed = await _run(here, _FORK, pids=PROBE_PROCESSES)
        if printed.strip() != b"refused":
            here = here._replace(pids=None)
    return here


async def _run(
    here: Delegated, code: str, *, memory: int | None = None, pids: int | None = None
) -> tuple[Report | None, bytes]:
    printed = bytearray()

    async def keep(stream: str, data: bytes) -> None:
        if stream == "stdout":
            printed.extend(data[:1000])

    mark = uuid4().hex
    with tempfile.TemporaryDirectory(prefix="perdure-probe-") as folder:
        order = Order(
            (_PYTHON, "-I", "-S", "-c", code),
            {},
            Path(folder),
            Limits(),
            groups=here.groups(mark, memory=memory, pids=pids),
            mark=mark,
        )
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                return await run(order, b"", keep, lambda _: None), bytes(printed)
        except (TimeoutError, OSError):
            return None, bytes(printed)
