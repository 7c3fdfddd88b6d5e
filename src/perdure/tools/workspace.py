"""The place of one run on this machine: a folder with the workspace and a home.

A lock on a file in it says that its worker lives. The kernel frees the lock of a process that was killed, so any worker can tell
what may be swept. The folder of all workspaces is locked for the moments in which a workspace is made or looked at: one without a
locked file is abandoned, also if its worker was killed before it had made the file, or while it removed it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.model.errors import ConfigError
from perdure.tools.cgroups import Delegated
from perdure.tools.leftovers import end_run

_LOCK = "lock"
_KEPT = "kept"
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
    place, lock = await asyncio.to_thread(_made, work_dir, name, keep)
    try:
        yield place
    finally:
        try:
            if not keep:
                await asyncio.shield(asyncio.to_thread(_emptied, place))
        finally:
            os.close(lock)


def _emptied(place: Workspace) -> None:
    """Removed, with its lock at last: meanwhile it does not look abandoned."""
    for folder in (place.files, place.home, place.base):
        remove(folder)
    remove(place.root)


def _made(work_dir: Path, name: str, keep: bool) -> tuple[Workspace, int]:
    """The folders, and the lock on them."""
    place = Workspace(checked(work_dir) / f"{name}{_SUFFIX}")
    remove(place.root)
    with _locked(work_dir):
        place.root.mkdir(mode=0o700)
        lock = os.open(place.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        for folder in (place.files, place.home):
            folder.mkdir(mode=0o700)
        if keep:
            (place.root / _KEPT).touch()
    except BaseException:
        os.close(lock)
        raise
    return place, lock


@contextmanager
def _locked(work_dir: Path) -> Iterator[None]:
    """Meanwhile no other process makes a workspace or looks which ones are abandoned."""
    folder = os.open(work_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


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


def sweep(work_dir: Path, groups: Delegated) -> list[str]:
    """Remove the workspaces whose workers have ended without removing them, and kill what still runs in them: the launcher of
    such a run may have been killed as well. groups: where cgroups of runs are. Returns their names. Those that are to be kept
    stay."""
    swept = []
    for root in sorted(work_dir.glob(f"*{_SUFFIX}")):
        try:
            lock = _taken(work_dir, root)
        except OSError:
            continue  # another worker holds it, or removes it
        try:
            if not (root / _KEPT).exists():
                mark = str(Workspace(root.resolve()).home)
                end_run(mark, groups.groups(mark, memory=0, pids=0))
                remove(root)
                swept.append(root.name)
        finally:
            if lock is not None:
                os.close(lock)
    return swept


def _taken(work_dir: Path, root: Path) -> int | None:
    """The lock of an abandoned workspace; None if it has none, because its worker was killed so early or late. Raises OSError if
    it is not abandoned."""
    with _locked(work_dir):
        try:
            lock = os.open(root / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise
        return lock


def remove(root: Path) -> None:
    """Delete a folder and all in it, also what a CLI made read-only. Links are removed, not followed. Another process may do the
    same at the same time."""

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
