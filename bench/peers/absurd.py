"""Absurd: durable steps in PostgreSQL, through its Python package, which is installed in a virtual environment of its own."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.checks import Incorrect
from bench.peers.install import command, installed
from bench.targets import Target

PACKAGES = ("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]==3.2.*")
SCRIPT = Path(__file__).with_name("absurd_steps.py")
_turn = asyncio.Lock()


async def _with_pip(folder: Path, packages: Sequence[str]) -> None:
    await command(sys.executable, "-m", "venv", folder)
    await command(folder / "bin" / "python", "-m", "pip", "install", "-qq", *packages)


async def steps(target: Target, jobs: int, each: int, concurrency: int) -> float:
    """Steps a second, of jobs that wait already, so many at a time. Raises LeftOut where it cannot be installed."""
    async with _turn:
        folder = await installed("absurd", PACKAGES, _with_pip)
    async with target.fresh() as url:
        env = {**os.environ, "ABSURD_DATABASE_URL": url}
        await command(folder / "bin" / "absurdctl", "init", env=env)
        arguments = map(str, (jobs, each, concurrency))
        printed = await command(folder / "bin" / "python", SCRIPT, *arguments, env=env)
    result = json.loads(printed.splitlines()[-1])
    if result["steps"] != jobs * each:
        raise Incorrect(f"Absurd recorded {result['steps']} of {jobs * each} steps")
    return jobs * each / float(result["seconds"])
