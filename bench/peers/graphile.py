"""Graphile Worker with its documented settings for a high rate: a local queue of 500 jobs, completions in batches."""

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from bench.checks import Incorrect, LeftOut
from bench.handlers import PAYLOAD
from bench.peers.install import command, installed
from bench.processes import Drained, Workers, drain_by
from bench.targets import Target

PACKAGES = ("graphile-worker@0.18.0", "pg@8.23.1")
NODE = (22, 18)
"""The oldest Node that this release of Graphile Worker supports."""
NEWER_NODE = "node@22.23.3"
SCRIPT = Path(__file__).with_name("graphile_worker.mjs")
LEFT = "select exists (select 1 from graphile_worker._private_jobs)"
_turn = asyncio.Lock()


async def install() -> list[str]:
    """The command that starts graphile_worker.mjs. Raises LeftOut where there is no Node or npm."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise LeftOut("the comparison with Graphile Worker needs node and npm on PATH")

    async def with_npm(folder: Path, packages: Sequence[str]) -> None:
        (folder / "package.json").write_text('{"private": true}\n')
        await command(npm, "install", "--no-audit", "--no-fund", "--silent", *packages, cwd=folder)

    async with _turn:
        old = tuple(map(int, (await command(node, "--version")).lstrip("v").split(".")[:2])) < NODE
        folder = await installed("graphile", (*PACKAGES, NEWER_NODE) if old else PACKAGES, with_npm)
    return [str(folder / "node_modules" / ".bin" / "node") if old else node, str(SCRIPT), str(folder)]


async def drain(target: Target, start: list[str], jobs: int, number: int) -> Drained:
    """Jobs that wait already, by so many worker processes."""
    async with target.fresh() as url:
        env = {**os.environ, "DATABASE_URL": url}  # not on the command line, where others read the password
        await command(*start, "enqueue", str(jobs), json.dumps(PAYLOAD), env=env)
        await target.settle(url)
        async with target.connected(url) as first_row, Workers.started([*start, "work"], number, env=env) as workers:
            if not (await first_row(LEFT))[0]:
                raise Incorrect("Graphile Worker has no jobs to drain")

            async def left() -> bool:
                return bool((await first_row(LEFT))[0])

            return await drain_by(target, workers, jobs, left)
