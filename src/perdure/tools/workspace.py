"""The place of one run on this machine: a folder with the workspace and a home.

A lock on a file in it says that its worker lives. The kernel frees the lock of a process that was killed, so any worker can tell
what may be swept."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.model.errors import ConfigError
from perdure.tools.outputs import write_input

_LOCK = "lock"
_SUFFIX = ".run"


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders of one run. root: has the others in it."""

    root: Path

    @property
    def files(self) -> Path:
        """Where the CLI works."""
        return self.root / "workspace"

    @property
    def base(self) -> Path:
        """Where a bare clone of the repository is put, which the CLI cannot write to."""
        return self.root / "base.git"

    @property
    def home(self) -> Path:
        """Its HOME."""
        return self.root / "home"


@asynccontextmanager
async def workspace(work_dir: Path, name: str, *, keep: bool) -> AsyncIterator[Workspace]:
    """A new workspace, removed at the end unless it is kept. Raises ConfigError as `checked`."""
    place, lock = await asyncio.to_thread(_made, work_dir, name)
    try:
        yield place
    finally:
        try:
            if not keep:
                await asyncio.shield(asyncio.to_thread(remove, place.root))
        finally:
            os.close(lock)


def _made(work_dir: Path, name: str) -> tuple[Workspace, int]:
    """The folders, and the lock on them."""
    place = Workspace(checked(work_dir) / f"{name}{_SUFFIX}")
    remove(place.root)
    place.root.mkdir(mode=0o700)
    lock = os.open(place.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for folder in (place.files, place.home):
            folder.mkdir(mode=0o700)
    except BaseException:
        os.close(lock)
        raise
    return place, lock


def checked(work_dir: Path) -> Path:
    """The folder of all workspaces, made if it is missing. Raises ConfigError if another user owns it, or it is a link."""
    try:
        work_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = work_dir.lstat()
    except OSError as error:
        raise ConfigError(f"cli_work_dir {work_dir} cannot be used: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise ConfigError(
            f"cli_work_dir {work_dir} is a link or belongs to another user", hint="name another folder: cli_work_dir"
        )
    if found.st_mode & 0o077:
        work_dir.chmod(0o700)
    return work_dir


def sweep(work_dir: Path) -> list[str]:
    """Remove the workspaces whose workers have ended without removing them; returns their names."""
    swept = []
    with suppress(FileNotFoundError):
        for root in sorted(work_dir.glob(f"*{_SUFFIX}")):
            if _abandoned(root):
                remove(root)
                swept.append(root.name)
    return swept


def _abandoned(root: Path) -> bool:
    try:
        lock = os.open(root / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False  # just made, or just removed
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def remove(root: Path) -> None:
    """Delete a folder and all in it, also what a CLI made read-only. Links are removed, not followed."""

    def permit(function: object, path: str, _: object) -> None:
        del function
        with suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)  # noqa: PTH101, PTH120  shutil gives text
            if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114  as above
                os.chmod(path, 0o700)  # noqa: PTH101  as above
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)  # noqa: PTH108  as above

    if root.exists() or root.is_symlink():
        shutil.rmtree(root, onerror=permit)


def put_inputs(place: Workspace, files: Mapping[str, bytes]) -> None:
    """Write the input files, whose paths are checked already, into a workspace."""
    for path, content in files.items():
        write_input(place.files, path, content)
