"""Limits on all processes of a run together: really exceeded where this machine lets us make cgroups, and what a run gets where
it does not."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.model.tooling import Account, RunClass, TaskSpec
from perdure.tools import CliSettings, Limits
from perdure.tools.cgroup_probe import cgroups
from perdure.tools.cgroups import Delegated, Group, delegated, name_of
from perdure.tools.leftovers import end_run
from perdure.tools.preparation import _limits
from perdure.tools.registry import ADAPTERS
from perdure.tools.settings import MIB
from tests.tools.conftest import Bench
from tests.tools.scripts import alive, tool

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="cgroups are of Linux")

ACCOUNT = Account(id="a", tool="script")
TASK = TaskSpec(tool="script", prompt="p", timeout=30.0)
V2 = Delegated(("/g", "memory.max"), ("/g", "pids.max"), "memory.swap.max")


def own_groups() -> list[Path]:
    """The folders of the groups that this process is in, of version 2 and of the controllers of version 1."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for words in mounts:
            kind, options = words[words.index("-") + 1], words[-1].split(",")
            if kind == "cgroup2" if not controllers else kind == "cgroup" and set(controllers.split(",")) <= {*options}:
                found.append(Path(words[4], path.lstrip("/")))
    return found


@pytest.fixture
async def folders() -> AsyncIterator[tuple[str, ...]]:
    """Groups of this test, below its own ones, in which runs may be limited."""
    made = []
    for group in own_groups():
        folder = group / f"perdure-tests-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        made.append(folder)
    try:
        names = tuple(map(str, made))
        found = await cgroups(names)
        if found.memory is None or found.pids is None:
            pytest.skip(f"this machine lets us limit nothing by cgroups: {found}")
        yield names
    finally:
        for folder in made:
            folder.rmdir()  # fails if a group of a run is left


@pytest.fixture
def place(tmp_path: Path) -> Bench:
    return Bench(tmp_path, CliSettings(level="L0"))


async def test_a_run_that_uses_too_much_memory(place: Bench, folders: tuple[str, ...]) -> None:
    """Two processes, each with less than the limit."""
    code = """
    import os
    if os.fork() == 0:
        x = bytearray(45 << 20)
        os._exit(0 if len(x) else 1)
    x = bytearray(45 << 20)
    os.wait()
    x = bytearray(90 << 20)
    print("done")
    """
    place.adapters = tool(place.folder, code)
    limits = Limits(memory_bytes=64 * MIB)
    place.settings = CliSettings(level="L0", limits=limits, cgroups=folders)
    run = await place.run(TASK, ACCOUNT)
    assert (run.outcome, run.detail) == (RunClass.UNKNOWN, "memory")
    assert run.message == "it used more memory than the 64 MiB that it may"
    assert run.sandbox.limits == ("memory", "pids")
    assert "memory" not in run.sandbox.missing
    assert place.starts[0].sandbox == run.sandbox


async def test_a_run_that_starts_too_many_processes(place: Bench, folders: tuple[str, ...]) -> None:
    code = """
    import os, time
    started = 0
    try:
        for _ in range(100):
            if os.fork() == 0:
                time.sleep(60)
            started += 1
    except OSError as error:
        print(started, error.strerror)
    """
    place.adapters = tool(place.folder, code)
    place.settings = CliSettings(level="L0", limits=Limits(processes=20), cgroups=folders)
    run = await place.run(TASK, ACCOUNT)
    assert (run.outcome, run.final_text) == (RunClass.OK, "19 Resource temporarily unavailable")


async def test_what_a_killed_launcher_leaves_is_found_by_its_group(place: Bench, folders: tuple[str, ...]) -> None:
    """Also processes that have no mark, because they have another environment."""
    code = """
    import os, signal, subprocess, time
    child = subprocess.Popen(["sleep", "300"], env={}, start_new_session=True)
    print("pids", child.pid, flush=True)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(300)
    """
    place.adapters = tool(place.folder, code)
    place.settings = CliSettings(level="L0", cgroups=folders)
    run = await place.run(TASK, ACCOUNT)
    assert (run.outcome, run.detail) == (RunClass.UNKNOWN, "launcher")
    [child] = map(int, bytes(place.output["stdout"]).split()[1:])
    assert alive([child]) == []


async def test_a_folder_that_is_no_cgroup_limits_nothing(place: Bench, tmp_path: Path) -> None:
    """The address space of each process is limited instead, and the record says what is missing."""
    assert await cgroups((str(tmp_path), "/nonexistent")) == Delegated()
    assert list(tmp_path.iterdir()) == []
    code = "x = bytearray(900 << 20); print('done')"
    place.adapters = tool(place.folder, code)
    limits = Limits(memory_bytes=512 * MIB)
    place.settings = CliSettings(level="L0", limits=limits, cgroups=(str(tmp_path),))
    run = await place.run(TASK, ACCOUNT)
    assert (run.outcome, run.exit_code) == (RunClass.UNKNOWN, 1)
    assert run.stderr.text.endswith("MemoryError\n")
    assert run.sandbox.limits == ()
    assert run.sandbox.missing == (("memory", "pids") if os.geteuid() == 0 else ("memory",))


@pytest.mark.parametrize(
    ("asked", "groups", "given"),
    [
        (Limits(), Delegated(), None),
        (Limits(address_bytes=1), Delegated(), 4 << 30),
        (Limits(address_bytes=8 << 30), Delegated(), 8 << 30),
        (Limits(memory_bytes=1 << 30), Delegated(), 4 << 30),
        (Limits(memory_bytes=6 << 30), Delegated(), 6 << 30),
        (Limits(memory_bytes=6 << 30, address_bytes=5 << 30), Delegated(), 5 << 30),
        (Limits(memory_bytes=1 << 30), V2, None),
    ],
)
def test_the_address_space_is_at_least_what_the_tool_starts_with(
    asked: Limits, groups: Delegated, given: int | None
) -> None:
    claude = ADAPTERS["claude"]
    assert claude.address_bytes == 4 << 30
    assert _limits(claude, CliSettings(limits=asked), groups).address_bytes == given


def test_one_group_in_version_2_and_two_in_version_1() -> None:
    name = name_of("m")
    limits = {"memory.max": "5", "memory.swap.max": "0", "pids.max": "3"}
    assert V2.groups("m", memory=5, pids=3) == (Group(f"/g/{name}", limits),)
    assert V2.groups("m", pids=3) == (Group(f"/g/{name}", {"pids.max": "3"}),)
    v1 = Delegated(("/m", "memory.limit_in_bytes"), ("/p", "pids.max"), "memory.memsw.limit_in_bytes")
    memory = {"memory.limit_in_bytes": "5", "memory.memsw.limit_in_bytes": "5"}
    assert v1.groups("m", memory=5, pids=3) == (Group(f"/m/{name}", memory), Group(f"/p/{name}", {"pids.max": "3"}))
    assert Delegated().groups("m", memory=5, pids=3) == ()


@pytest.mark.parametrize("version", [1, 2])
def test_the_files_of_a_group_say_what_can_be_limited(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel does it, a new folder has the files of the controllers that are on."""
    make, remove, folder = Path.mkdir, Path.rmdir, str(tmp_path)
    files = ["pids.max", "memory.max", "memory.swap.max"] if version == 2 else ["memory.limit_in_bytes"]

    def mkdir(path: Path, *_: object, **__: object) -> None:
        make(path)
        for name in ("cgroup.procs", *files):
            (path / name).touch()

    def rmdir(path: Path) -> None:
        for file in path.iterdir():
            file.unlink()
        remove(path)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", rmdir)
    controllers = tmp_path / "cgroup.subtree_control"
    if version == 1:
        assert delegated([folder]) == Delegated((folder, "memory.limit_in_bytes"))
        assert not controllers.exists()
    else:
        controllers.touch()
        assert delegated(["/nonexistent", folder]) == Delegated(
            (folder, "memory.max"), (folder, "pids.max"), "memory.swap.max"
        )
        assert controllers.read_text().startswith("+pids")


def test_a_process_with_the_mark_of_a_run_is_killed_and_no_other() -> None:
    marked = subprocess.Popen(["sleep", "300"], env={"PERDURE_RUN": "mark-1"}, start_new_session=True)
    other = subprocess.Popen(["sleep", "300"], env={"PERDURE_RUN": "mark-12", "X": "PERDURE_RUN=mark-1"})
    try:
        assert end_run("mark-1") == 1
        assert marked.wait(10) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (marked, other):
            process.kill()
            process.wait()
