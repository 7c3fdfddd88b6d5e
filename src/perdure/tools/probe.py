"""Trying an account: is its tool installed, is its credential accepted?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from perdure.model.tooling import Account, CliRun, RunClass, TaskSpec
from perdure.tools.adapters.base import Adapter
from perdure.tools.run import run_cli
from perdure.tools.settings import CliSettings
from perdure.tools.workspace import workspace

PROMPT = "Reply with the word ok and do nothing else."
SECONDS = 120.0
WROTE = "it wrote to its credential, a copy that is removed at the end of each run"


async def probe(account: Account, work_dir: Path, settings: CliSettings, adapters: Mapping[str, Adapter]) -> CliRun:
    """Run the tool of an account once, with a short prompt, in a workspace of its own; `fatal` if it wrote to its credential,
    which is read-only. Raises ToolRefused."""
    task = TaskSpec(account.tool, PROMPT, timeout=SECONDS)
    async with workspace(work_dir, f"probe-{uuid4().hex[:12]}", keep=False) as place:
        run = await run_cli(task, account, workspace=place.files, home=place.home, settings=settings, adapters=adapters)
    if run.ok and run.credential_changed:
        return replace(run, outcome=RunClass.FATAL, detail="credential", message=WROTE)
    return run
