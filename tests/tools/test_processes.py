"""No process of a run outlives it: at its end, its timeout, its silence, its cancel, and the death of its worker."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perdure.model.tooling import Account, RunClass, TaskSpec
from perdure.tools import CliSettings, launcher
from tests.tools.conftest import Bench
from tests.tools.scripts import TREE, alive, pids_in, tool

ACCOUNT = Account(id="a", tool="script")
linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="levels and descendants are known on Linux alone"
)


def task(**changes: object) -> TaskSpec:
    return TaskSpec(**{"tool": "script", "prompt": "p", "timeout": 30.0, "kill_after": 0.3, **changes})  # type: ignore[arg-type]


@pytest.fixture
def place(tmp_path: Path) -> Bench:
    return Bench(tmp_path, CliSettings(level="L0"))


@linux
class TestTrees:
    """Trees of processes, with sessions of their own in them."""

    async def test_at_the_end_of_the_run(self, place: Bench) -> None:
        place.adapters = tool(place.folder, TREE)
        run = await place.run(task(), ACCOUNT)
        assert run.outcome is RunClass.OK
        assert len(pids_in(place.output["stdout"])) == 5
        assert alive(pids_in(place.output["stdout"])) == []
        assert run.survivors == 0

    @pytest.mark.parametrize("level", ["L0", "L1", "L2"])
    async def test_at_the_timeout(self, place: Bench, level: str) -> None:
        place.settings = CliSettings(level=level)
        code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + TREE + "time.sleep(300)"
        place.adapters = tool(place.folder, code)
        began = time.monotonic()  # the timeout counts from here, `run.seconds` from when the program has begun
        run = await place.run(task(timeout=1.5), ACCOUNT)
        assert time.monotonic() - began > 1.5
        assert (run.outcome, run.detail) == (RunClass.TIMEOUT, "timeout")
        assert run.message == "it did not end within 1.5 seconds"
        assert run.seconds < 6
        if run.sandbox.effective != "L2":  # there it prints the ids of its own namespace
            assert len(pids_in(place.output["stdout"])) == 5
            assert alive(pids_in(place.output["stdout"])) == []

    async def test_a_program_may_end_itself_when_it_is_asked(self, place: Bench) -> None:
        code = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit('bye')); time.sleep(300)"
        place.adapters = tool(place.folder, code)
        run = await place.run(task(timeout=5.0, kill_after=20.0), ACCOUNT)
        assert (run.outcome, run.exit_code, run.stderr.text) == (RunClass.TIMEOUT, 1, "bye\n")
        assert run.seconds < 20

    async def test_at_silence(self, place: Bench) -> None:
        code = (
            "import time\nfor n in range(10):\n    print(n, flush=True)\n    time.sleep(0.25)\n"
            + TREE
            + "time.sleep(300)"
        )
        place.adapters = tool(place.folder, code)
        run = await place.run(task(no_output_timeout=2.0), ACCOUNT)
        assert (run.outcome, run.detail) == (RunClass.TIMEOUT, "no_output")
        assert run.seconds > 4.2
        assert alive(pids_in(place.output["stdout"])) == []

    @pytest.mark.parametrize("victim", ["itself", "launcher"])
    async def test_at_the_timeout_of_one_that_stopped(
        self, victim: str, place: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By SIGSTOP: what is stopped does nothing when it is asked to end."""
        monkeypatch.setattr("perdure.tools.process.END_SECONDS", 0.5)
        pid = "os.getpid()" if victim == "itself" else "os.getppid()"
        place.adapters = tool(place.folder, TREE + f"import signal; os.kill({pid}, signal.SIGSTOP)\ntime.sleep(300)")
        run = await place.run(task(timeout=5.0), ACCOUNT)
        expected = (RunClass.TIMEOUT, "timeout") if victim == "itself" else (RunClass.UNKNOWN, "launcher")
        assert (run.outcome, run.detail) == expected
        assert len(pids_in(place.output["stdout"])) == 5
        assert alive(pids_in(place.output["stdout"])) == []

    async def test_at_a_cancel(self, place: Bench) -> None:
        place.adapters = tool(place.folder, TREE + "time.sleep(300)")
        running = asyncio.create_task(place.run(task(kill_after=20.0), ACCOUNT))
        while len(pids_in(place.output["stdout"])) < 5:
            await asyncio.sleep(0.05)
        assert len(alive(pids_in(place.output["stdout"]))) == 5
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert alive(pids_in(place.output["stdout"])) == []

    async def test_when_the_receiver_of_its_output_fails(self, place: Bench) -> None:
        place.adapters = tool(place.folder, TREE + "time.sleep(300)")
        seen = bytearray()

        async def broken(data: bytes) -> None:
            seen.extend(data)
            if len(pids_in(seen)) == 5:
                raise RuntimeError("no store")

        place.on_output = broken
        with pytest.raises(RuntimeError, match="no store"):
            await place.run(task(), ACCOUNT)
        assert alive(pids_in(seen)) == []

    @pytest.mark.parametrize("victim", ["worker", "launcher"])
    def test_at_the_death_of(self, victim: str, place: Bench) -> None:
        """SIGKILL of the worker or of the launcher takes all of them."""
        code = TREE + "print('ppid', os.getppid(), flush=True)\ntime.sleep(300)"
        (place.folder / "code").write_text(code)
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(place.folder)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        assert worker.stdout is not None
        printed = b""
        while b"ppid" not in printed or not printed.endswith(b"\n"):
            printed += worker.stdout.readline()
        pids = pids_in(printed)
        launcher = int(printed.partition(b"ppid ")[2].split()[0])
        assert len(alive(pids)) == 5
        os.kill(worker.pid if victim == "worker" else launcher, signal.SIGKILL)
        expected_dead = [*pids, launcher]
        until = time.monotonic() + 10
        while alive(expected_dead) and time.monotonic() < until:
            time.sleep(0.02)
        left = alive([*pids, launcher])
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        if victim == "launcher":
            rest = json.loads(worker.communicate(timeout=20)[0].splitlines()[-1])
            assert rest == ["unknown", "launcher"]
        worker.kill()
        worker.wait()
        worker.stdout.close()
        assert [pid for pid in left if pid in expected_dead] == []


WORKER = """
import asyncio, json, sys
from pathlib import Path
from perdure.model.tooling import Account, TaskSpec
from perdure.tools import CliSettings, run_cli
from tests.tools.scripts import tool

async def show(stream, data):
    sys.stdout.write(data.decode())
    sys.stdout.flush()

async def main(folder):
    for name in ("workspace", "home"):
        (folder / name).mkdir()
    run = await run_cli(
        TaskSpec(tool="script", prompt="p", timeout=60.0), Account(id="a", tool="script"), workspace=folder / "workspace",
        home=folder / "home", adapters=tool(folder, (folder / "code").read_text()), settings=CliSettings(level="L0"),
        on_output=show,
    )
    print(json.dumps([run.outcome, run.detail]), flush=True)

asyncio.run(main(Path(sys.argv[1])))
"""
"""A worker that runs one tool and passes on what it prints."""


async def test_the_exit_code_and_what_it_used(place: Bench) -> None:
    place.adapters = tool(place.folder, "import sys; print('x' * 10); sys.exit(3)")
    run = await place.run(task(), ACCOUNT)
    assert (run.outcome, run.detail, run.exit_code) == (RunClass.UNKNOWN, "3", 3)
    assert run.message == "x" * 10
    assert run.cpu_seconds > 0
    assert run.max_rss_bytes > 1_000_000


@linux
async def test_a_program_has_no_files_but_its_streams(place: Bench) -> None:
    """In particular not the socket by which the launcher reports."""
    place.adapters = tool(place.folder, "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])")
    assert (await place.run(task(), ACCOUNT)).final_text == "['0', '1', '2']"


async def test_a_program_that_is_killed(place: Bench) -> None:
    place.adapters = tool(place.folder, "import os; os.kill(os.getpid(), 9)")
    run = await place.run(task(), ACCOUNT)
    assert (run.outcome, run.exit_code) == (RunClass.UNKNOWN, -9)


async def test_a_program_that_cannot_start(place: Bench) -> None:
    place.adapters = tool(place.folder, "")
    (place.folder / "script.py").write_bytes(b"\x7fELF no program")
    run = await place.run(task(), ACCOUNT)
    assert (run.outcome, run.detail) == (RunClass.FATAL, "start")
    assert "Exec format error" in run.message


async def test_the_prompt_comes_by_standard_input_which_is_closed(place: Bench) -> None:
    place.adapters = tool(place.folder, "import sys; print(len(sys.stdin.read()), sys.argv[1:])")
    run = await place.run(task(prompt="-x" * 200_000), ACCOUNT)
    assert run.final_text == "400000 ['-']"


async def test_a_program_that_reads_no_prompt(place: Bench) -> None:
    place.adapters = tool(place.folder, "print('done')")
    run = await place.run(task(prompt="x" * 900_000), ACCOUNT)
    assert run.outcome is RunClass.OK


def test_the_launcher_imports_little() -> None:
    """Its start is a part of the time and of the processor time of every run."""
    source = Path(launcher.__file__)
    code = f"import sys; exec(compile(open({str(source)!r}).read(), 'x', 'exec'), {{'__name__': 'x'}}); print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ended.stdout.split())
    assert "ctypes" in loaded
    assert loaded.isdisjoint({"collections", "contextlib", "enum", "json", "perdure", "re", "socket", "typing"})
