"""A task's copy of a git repository, and what it changed there.

The copy is a clone with objects of its own, so nothing that a CLI does in it reaches the repository. What changed is found with
another, bare clone that the CLI cannot write to: the configuration, hooks and attributes of the copy may be the CLI's, and git
would run programs that they name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path

from perdure.model.errors import RepositoryRefused
from perdure.model.tooling import TaskSpec

GIT_SECONDS = 600.0
MAX_DIFF_BYTES = 8 * 1024 * 1024
_PLAIN = (
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.attributesFile=/dev/null",
    "-c", "submodule.recurse=false", "-c", "advice.detachedHead=false", "-c", "core.quotePath=true",
)  # fmt: skip


class Repository:
    """The clone of a task in its workspace, and the bare one next to it."""

    def __init__(self, workspace: Path, base: Path, commit: str) -> None:
        self._workspace = workspace
        self._base = base
        self.commit = commit
        """What was checked out."""
        self._inputs: tuple[str, ...] = ()
        self._before = commit

    @classmethod
    async def check_out(cls, task: TaskSpec, workspace: Path, base: Path) -> Repository:
        """Clone `task.repo` into the empty workspace and check out `task.ref`. base: where the bare clone is to be.

        Raises RepositoryRefused.
        """
        assert task.repo is not None
        await _git("clone", "--quiet", "--bare", "--shared", "--template=", "--", task.repo, str(base), what=task)
        found = await _git(
            f"--git-dir={base}", "rev-parse", "--verify", "--quiet", f"{task.ref or 'HEAD'}^{{commit}}", what=task
        )
        commit = found.decode().strip()
        copy = ("clone", "--quiet", "--no-hardlinks", "--no-checkout", "--template=", "--", task.repo, str(workspace))
        await _git(*copy, what=task)
        await _git("-C", str(workspace), "checkout", "--quiet", "--detach", commit, what=task)
        return cls(workspace, base, commit)

    async def note_inputs(self, paths: Collection[str]) -> None:
        """These input files are in the workspace now: those that stay as they are will be no part of the diff."""
        self._inputs = tuple(paths)
        if self._inputs:
            await self._read()
            self._before = (await _git(*self._own, "write-tree")).decode().strip()

    async def diff(self) -> bytes:
        """What differs from the commit now, new files too, as `git apply` takes it; empty if nothing does.

        Raises RepositoryRefused, also where it is larger than MAX_DIFF_BYTES.
        """
        await self._read()
        options = ("--cached", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-color")
        named = await _git(*self._own, "diff", *options, "--no-renames", "--name-only", "-z", self._before)
        changed = {os.fsdecode(path) for path in named.split(b"\0")}
        without = [f":(exclude,literal){path}" for path in self._inputs if path not in changed]
        diff = await _git(*self._own, "diff", *options, "--binary", self.commit, "--", ".", *without)
        if len(diff) > MAX_DIFF_BYTES:
            raise RepositoryRefused(f"what changed is {len(diff):,} bytes as a diff; the limit is {MAX_DIFF_BYTES:,}")
        return diff

    @property
    def _own(self) -> tuple[str, ...]:
        return (f"--git-dir={self._base}", f"--work-tree={self._workspace}", "-c", "core.bare=false")

    async def _read(self) -> None:
        """Put the files of the workspace into the index of the bare clone."""
        await _git(*self._own, "read-tree", self.commit)
        await _git(*self._own, "add", "--all", "--", ".")


async def _git(*args: str, what: TaskSpec | None = None) -> bytes:
    """What git prints. Nothing of the user's configuration applies."""
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "file",
        "LC_ALL": "C",
    }
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            *_PLAIN,
            *args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise RepositoryRefused("git is not installed on this machine", hint="install git") from None
    try:
        printed, errors = await asyncio.wait_for(process.communicate(), GIT_SECONDS)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        about = "" if what is None else f"{what.repo}{f' at {what.ref}' if what.ref else ''}: "
        said = errors.decode(errors="replace").strip().splitlines()
        if (
            what is not None and said and said[-1].endswith("does not exist")
        ):  # git says this of every folder that is none
            raise RepositoryRefused(f"{what.repo} is no git repository on the machine of the worker")
        raise RepositoryRefused(f"{about}{said[-1] if said else 'there is no such commit'}")
    return printed
