"""The chore of workers that run tasks: what workers of this machine left behind that were killed is removed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from perdure.runtime.chores import Chore, ChoreContext
from perdure.tools.cgroup_probe import cgroups
from perdure.tools.settings import CliSettings
from perdure.tools.workspace import sweep

INTERVAL = 60.0
PATIENCE = 0.5
"""Seconds that the other chores wait for this one; it goes on in a thread meanwhile."""

log = structlog.get_logger("perdure.tools")


class Sweep:
    """Removes the workspaces of killed workers, and kills what still runs in them."""

    def __init__(self, work_dir: Path, settings: CliSettings) -> None:
        self._work_dir = work_dir
        self._settings = settings
        self._going: asyncio.Task[None] | None = None

    async def __call__(self) -> bool:
        """Begin it, or see whether it is finished. Raises OSError."""
        if self._going is None:
            self._going = asyncio.create_task(self._sweep())
        finished, _ = await asyncio.wait({self._going}, timeout=PATIENCE)
        for task in finished:
            task.result()
        return bool(finished)

    async def _sweep(self) -> None:
        groups = await cgroups(self._settings.cgroups)
        if swept := await asyncio.to_thread(sweep, self._work_dir, groups):
            log.info("workspaces of killed workers removed", names=swept)


def sweeping(work_dir: Path, settings: CliSettings) -> Chore:
    """The chore, for the workspaces in this folder."""

    def start(_: ChoreContext) -> Sweep:
        return Sweep(work_dir, settings)

    return Chore("workspaces", start, interval=lambda _: INTERVAL)
