"""What a run can and cannot do at each level, and what is recorded of it."""

import os
import shutil
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.model.errors import DangerRefused, SandboxTooWeak
from perdure.model.tooling import Account, RunClass, TaskSpec
from perdure.tools import CliSettings, Limits
from perdure.tools.sandbox import Machine, Needs, confinement, machine
from tests.tools import clis
from tests.tools.conftest import Bench
from tests.tools.scripts import tool

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="levels above L0 are for Linux")

ACCOUNT = Account(id="a", tool="script", env={"API": "http://127.0.0.1:PORT/x"})
TASK = TaskSpec(tool="script", prompt="p", timeout=30.0)

ATTEMPTS = """
import os, socket, sys
outside, secret, closed, api, pid = sys.argv[1:6]
done = []

def attempt(name, call):
    try:
        call()
        done.append(name)
    except OSError:
        pass

attempt("write outside", lambda: open(outside, "w").close())
attempt("read outside", lambda: open(secret).close())
attempt("link out", lambda: (os.symlink(secret, "link"), open("link").close()))
attempt("connect", lambda: socket.create_connection(("127.0.0.1", int(closed)), 2).close())
attempt("signal", lambda: os.kill(int(pid), 0))
attempt("api", lambda: socket.create_connection(("127.0.0.1", int(api)), 2).close())
attempt("workspace", lambda: open("new", "w").close())
attempt("home", lambda: open(os.environ["HOME"] + "/new", "w").close())
attempt("tmp", lambda: open(os.environ["TMPDIR"] + "/new", "w").close())
attempt("null", lambda: open("/dev/null", "w").close())
print(",".join(done))
"""
NEEDED = {"api", "workspace", "home", "tmp", "null"}


@pytest.fixture
def bwrap(programs: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bubblewrap in PATH: the machine's own, or the one that codex brings."""
    found = shutil.which("bwrap")
    if found is None:
        brought = next(clis.installed().parent.glob("@openai/codex-*/vendor/*/codex-resources/bwrap"))
        monkeypatch.setenv("PATH", f"{brought.parent}:{os.environ['PATH']}")
        found = str(brought)
    return found


async def attempted(place: Bench, level: str) -> tuple[set[str], CliSettings]:
    other = place.folder.parent / "other"  # the folder of the program itself may be read
    other.mkdir()
    (other / "secret").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as closed, socket.create_server(("127.0.0.1", 0)) as api:
        ports = [str(server.getsockname()[1]) for server in (closed, api)]
        arguments = [str(other / "outside"), str(other / "secret"), *ports, str(os.getpid())]
        place.adapters = tool(place.folder, ATTEMPTS, args=arguments)
        place.settings = CliSettings(level=level)
        account = replace(ACCOUNT, env={"API": f"http://127.0.0.1:{ports[1]}/x"})
        run = await place.run(TASK, account)
    assert run.outcome is RunClass.OK, run
    assert run.sandbox.effective == level
    assert set(run.sandbox.missing) <= {"pids"}, "its processes may not be limited, see test_cgroups"
    return set(run.final_text.split(",")), place.settings


@pytest.fixture
def place(tmp_path: Path) -> Bench:
    folder = tmp_path / "run"
    folder.mkdir()
    return Bench(folder, CliSettings(level="L0"))


async def test_l0_confines_nothing(place: Bench) -> None:
    done, _ = await attempted(place, "L0")
    assert done == {"write outside", "read outside", "link out", "connect", "signal"} | NEEDED


async def test_l1(place: Bench) -> None:
    if not (await machine()).landlock:
        pytest.skip("this kernel has no Landlock")
    done, _ = await attempted(place, "L1")
    assert done == NEEDED
    assert not (place.folder.parent / "other" / "outside").exists()


async def test_l2(place: Bench, bwrap: str) -> None:
    here = await machine()
    if not here.bwrap:
        pytest.skip("bubblewrap does not work on this machine")
    done, _ = await attempted(place, "L2")
    assert done == NEEDED
    assert not (place.folder.parent / "other" / "outside").exists()


NEEDS = Needs(("/usr",), ("/w",), (443,), "/w")
ALL = frozenset({"read", "write", "connect"})
FULL = Machine(ALL, ALL, "/usr/bin/bwrap", "6.18", 7)
BARE = Machine(frozenset(), frozenset(), None, "5.4", 0)
OLD = Machine(frozenset({"read", "write"}), frozenset(), None, "6.1", 2)


@pytest.mark.parametrize(
    ("level", "here", "under_landlock", "effective", "missing"),
    [
        ("L0", FULL, True, "L0", ()),
        ("L1", FULL, True, "L1", ()),
        ("L1", FULL, False, "L2", ()),
        ("L2", FULL, True, "L2", ()),
        ("L1", OLD, True, "L1", ("network",)),
        ("L2", OLD, True, "L1", ("network", "processes")),
        ("L1", OLD, False, "L0", ("files", "network")),
        ("L1", BARE, True, "L0", ("files", "network")),
        ("L2", BARE, True, "L0", ("files", "network", "processes")),
        ("L1", FULL._replace(bwrap=frozenset()), False, "L0", ("files",)),
    ],
)
def test_the_level_that_a_machine_gives(
    level: str, here: Machine, under_landlock: bool, effective: str, missing: tuple[str, ...]
) -> None:
    given = confinement(level, "L0", NEEDS._replace(under_landlock=under_landlock), here)
    assert (given.sandbox.requested, given.sandbox.effective, given.sandbox.missing) == (level, effective, missing)
    assert bool(given.prefix) is (effective == "L2")
    with_files = given.rules is not None and given.rules.get("read") is not None
    assert with_files is (effective == "L1")
    if effective != "L2":
        with pytest.raises(SandboxTooWeak, match=f"gives the run level {effective}"):
            confinement(level, "L2", NEEDS._replace(under_landlock=under_landlock), here)


async def test_below_the_least_level_nothing_is_started(place: Bench) -> None:
    place.adapters = tool(place.folder, "open('started', 'w')")
    place.settings = CliSettings(level="L0", min_level="L1")
    with pytest.raises(SandboxTooWeak):
        await place.run(TASK, replace(ACCOUNT, env={}))
    assert place.starts == []
    assert list(place.workspace.iterdir()) == []


async def test_limits_of_the_operating_system(place: Bench) -> None:
    code = """
    import os, resource
    kinds = ("CPU", "NOFILE", "FSIZE", "NPROC", "CORE", "AS")
    print([resource.getrlimit(getattr(resource, "RLIMIT_" + k))[0] for k in kinds], os.nice(0))
    """
    place.adapters = tool(place.folder, code)
    limits = Limits(cpu_seconds=60, open_files=128, file_bytes=1 << 20, processes=1000, address_bytes=4 << 30)
    place.settings = CliSettings(level="L0", limits=limits, nice=7)
    run = await place.run(TASK, replace(ACCOUNT, env={}))
    nice = min(19, os.nice(0) + 7)
    assert run.final_text == f"[60, 128, {1 << 20}, 1000, 0, {4 << 30}] {nice}"


async def test_a_run_that_uses_up_its_processor_time(place: Bench) -> None:
    place.adapters = tool(place.folder, "while True: pass")
    place.settings = CliSettings(level="L0", limits=Limits(cpu_seconds=1))
    run = await place.run(TASK, replace(ACCOUNT, env={}))
    assert (run.outcome, run.exit_code) == (RunClass.UNKNOWN, -9)


async def test_the_environment_is_made_from_scratch(place: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_SECRET", "x")
    place.adapters = tool(place.folder, "import os; print(sorted(os.environ)); print(os.environ['HOME'], os.getcwd())")
    run = await place.run(replace(TASK, env={"CI": "1"}), replace(ACCOUNT, env={"B": "2"}))
    names, places = run.final_text.split("\n")
    expected = [
        "B",
        "CI",
        "GIT_TERMINAL_PROMPT",
        "HOME",
        "LANG",
        "NO_COLOR",
        "PATH",
        "PERDURE_RUN",
        "TERM",
        "TMPDIR",
        "TZ",
    ]
    assert [name for name in eval(names) if name != "LC_CTYPE"] == expected  # Python may set LC_CTYPE
    assert places == f"{place.home.resolve()} {place.workspace.resolve()}"


class TestDanger:
    """Flags that switch a CLI's own protection off."""

    DANGEROUS = Account(id="d", tool="claude", dangerous=True)
    TASK = TaskSpec(tool="claude", prompt="p", timeout=5.0)

    async def test_a_worker_that_is_not_configured_for_it(self, bench: Bench) -> None:
        with pytest.raises(DangerRefused, match="not configured as a controlled container"):
            await bench.run(self.TASK, self.DANGEROUS)
        assert bench.starts == []

    async def test_a_worker_that_is_in_no_container(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("perdure.tools.preparation.in_container", lambda: False)
        bench.settings = replace(bench.settings, controlled_container=True, level="L0")
        with pytest.raises(DangerRefused, match="in no container"):
            await bench.run(self.TASK, self.DANGEROUS)

    async def test_both_conditions(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("perdure.tools.preparation.in_container", lambda: True)
        bench.settings = replace(bench.settings, controlled_container=True, give_up_after=0.5)
        account = replace(
            self.DANGEROUS, env={"ANTHROPIC_API_KEY": "env:TEST_KEY", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
        )
        run = await bench.run(replace(self.TASK, timeout=60.0), account)
        (start,) = bench.starts
        assert start.dangerous == ("--dangerously-skip-permissions",)
        assert start.writable == (str(bench.workspace), str(bench.home))
        assert run.outcome is RunClass.RETRYABLE, run
