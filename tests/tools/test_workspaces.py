"""Workspaces of killed workers are removed, with what still runs in them; all others stay."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.tools.cgroups import Delegated
from perdure.tools.workspace import sweep, workspace

NOTHING = Delegated()


def abandoned(work_dir: Path, name: str) -> Path:
    """What a worker leaves that was killed while a run went on."""
    root = work_dir / f"{name}.run"
    for folder in ("workspace", "home"):
        (root / folder).mkdir(parents=True)
    (root / "lock").touch()
    return root


async def test_those_of_killed_workers_alone_are_removed(tmp_path: Path) -> None:
    work_dir = tmp_path / "work"
    assert sweep(work_dir, NOTHING) == []
    async with workspace(work_dir, "mine", keep=False) as mine:
        root = abandoned(work_dir, "old")
        (root / "workspace" / "locked").mkdir(mode=0o500)
        assert sweep(work_dir, NOTHING) == ["old.run"]
        assert list(work_dir.iterdir()) == [mine.root]
        assert mine.files.is_dir()
    assert list(work_dir.iterdir()) == []


async def test_a_workspace_that_is_to_be_kept_stays(tmp_path: Path) -> None:
    async with workspace(tmp_path, "kept", keep=True) as kept:
        (kept.files / "a.txt").write_text("x")
    assert sweep(tmp_path, NOTHING) == []
    assert (kept.files / "a.txt").read_text() == "x"


@pytest.mark.parametrize("left", [(), ("home",), ("workspace", "home")])
def test_a_worker_may_be_killed_while_it_makes_or_removes_one(tmp_path: Path, left: tuple[str, ...]) -> None:
    """Its lock does not exist yet, or no longer."""
    root = tmp_path / "half.run"
    root.mkdir()
    for name in left:
        (root / name).mkdir()
    assert sweep(tmp_path, NOTHING) == ["half.run"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found by their mark on Linux alone")
async def test_what_still_runs_in_an_abandoned_one_is_killed(tmp_path: Path) -> None:
    """Its launcher was killed together with its worker."""
    marks = [abandoned(tmp_path, "old") / "home"]
    async with workspace(tmp_path, "mine", keep=False) as mine:
        marks.append(mine.home)
        old, live = (
            subprocess.Popen(["sleep", "300"], env={"PERDURE_RUN": str(m)}, start_new_session=True) for m in marks
        )
        try:
            assert sweep(tmp_path, NOTHING) == ["old.run"]
            assert old.wait(10) == -signal.SIGKILL
            assert live.poll() is None
        finally:
            for process in (old, live):
                process.kill()
                process.wait()


def test_another_sweeper_is_not_disturbed(tmp_path: Path) -> None:
    """It holds the lock while it removes."""
    root = abandoned(tmp_path, "old")
    lock = os.open(root / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        assert sweep(tmp_path, NOTHING) == []
    finally:
        os.close(lock)
    assert root.is_dir()
