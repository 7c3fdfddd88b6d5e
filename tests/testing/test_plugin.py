"""The pytest plugin, in sessions of pytest of its own: with pytest-asyncio, with anyio, with neither, and unused."""

import os
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from perdure import pytest_plugin

ROOT = Path(__file__).parents[2]
MODULE = "perdure.pytest_plugin"
PLUGIN = () if any(point.value == MODULE for point in entry_points(group="pytest11")) else ("-p", MODULE)
"""A checkout that was installed before the plugin existed has to be installed again."""

AGENT = """
from perdure import App, JobContext

app = App("postgresql://app@127.0.0.1:1/nowhere")

@app.job
async def nap(ctx: JobContext, name: str) -> str:
    await ctx.sleep("nap", "8h")
    return await ctx.step("greet", "good morning {}".format, name)
"""

QUIET = ("-W", "ignore::pytest.PytestDeprecationWarning")  # pytest-asyncio wants a default of its own to be set

Session = Callable[..., str]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Run pytest on the test file given, every warning an error, and return what it printed."""

    def run(tests: str, *options: str, passed: int, ini: str = "perdure_app = agent:app") -> str:
        (tmp_path / "agent.py").write_text(AGENT)
        (tmp_path / "test_agent.py").write_text(textwrap.dedent(tests))
        (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = .\n{ini}\n")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "PERDURE_"))}
        environment["PYTHONPATH"] = str(ROOT / "src")
        command = [sys.executable, "-m", "pytest", "-W", "error", *QUIET, "-p", "no:cacheprovider", *PLUGIN, *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert f"{passed} passed" in done.stdout or not passed, done.stdout + done.stderr
        assert (done.returncode == 0) is bool(passed), done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_it_is_announced_to_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"perdure": MODULE}


def test_who_does_not_use_it_pays_for_one_small_file() -> None:
    code = f"import pytest, sys, {MODULE}; print(sorted(m for m in sys.modules if 'perdure' in m or m == 'pydantic'))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(["perdure", MODULE, "perdure.version"])


def test_a_recorded_job_is_a_test(session: Session, tmp_path: Path) -> None:
    session(
        """
        import json
        from agent import app, nap

        def test_record(perdure_app):
            async def record():
                job = await perdure_app.enqueue(nap, "ann")
                await job.result()
                with open("nap.jsonl", "w") as file:
                    async for line in perdure_app.jobs.export(job.id):
                        file.write(json.dumps(line) + chr(10))

            perdure_app.run(record())

        def test_it_again(perdure_replay):
            assert perdure_replay("nap.jsonl").result == "good morning ann"
        """,
        "-p",
        "no:xdist",
        passed=2,
    )


def test_with_pytest_asyncio(session: Session) -> None:
    session(
        """
        import pytest
        from agent import app, nap
        from perdure.testing import ManualClock, TestApp

        @pytest.fixture
        async def started(perdure_app):
            return await app.enqueue(nap, "ann")

        @pytest.mark.asyncio
        async def test_nap(perdure_app: TestApp, perdure_clock: ManualClock, started) -> None:
            await perdure_app.run_until_idle()
            assert (await perdure_app.jobs.get(started.id)).status == "PARKED"
            perdure_clock.advance("8h")
            await perdure_app.run_until_idle()
            assert (await started.get()).result == "good morning ann"

        @pytest.mark.asyncio
        async def test_crashes(perdure_app):
            assert len((await perdure_app.crash_after_each_step(nap, "bob")).boundaries) == 4
            assert await perdure_app.jobs.count() == {}
        """,
        "-o",
        "asyncio_mode=auto",
        passed=2,
    )


def test_with_a_loop_for_the_whole_module(session: Session) -> None:
    session(
        """
        import pytest
        from agent import nap
        from perdure.testing import TestApp
        from agent import app

        pytestmark = pytest.mark.asyncio(loop_scope="module")

        @pytest.fixture(scope="module")
        def t():
            with TestApp(app) as t:
                yield t

        @pytest.mark.parametrize("name", ["ann", "bob"])
        async def test_nap(t, name):
            assert await (await t.enqueue(nap, name)).result() == f"good morning {name}"

        @pytest.mark.asyncio(loop_scope="function")
        async def test_another_loop(t):
            assert await (await t.enqueue(nap, "cleo")).result() == "good morning cleo"
            assert await t.jobs.count() == {"COMPLETED": 3}
        """,
        passed=3,
    )


def test_with_anyio(session: Session) -> None:
    session(
        """
        import pytest
        from agent import nap

        pytestmark = pytest.mark.anyio

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        async def test_nap(perdure_app):
            assert await (await perdure_app.enqueue(nap, "ann")).result() == "good morning ann"
        """,
        "-p",
        "no:asyncio",
        passed=1,
    )


def test_without_any_of_them(session: Session) -> None:
    session(
        """
        from agent import app, nap

        def test_nap(perdure_app, perdure_clock):
            job = perdure_app.run(app.enqueue(nap, "ann"))
            perdure_app.run(perdure_app.run_until_idle())
            perdure_clock.advance("8h")
            perdure_app.run(perdure_app.run_until_idle())
            assert perdure_app.run(job.get()).result == "good morning ann"

        def test_each_test_has_its_own(perdure_app):
            assert perdure_app.run(perdure_app.jobs.count()) == {}
            perdure_app.run(perdure_app.crash_after_each_step(nap, "bob"))
        """,
        "-p",
        "no:asyncio",
        "-p",
        "no:anyio",
        passed=2,
    )


def test_without_an_app_named(session: Session) -> None:
    session(
        """
        def test_own_handlers(perdure_app):
            @perdure_app.job
            async def double(ctx, n: int) -> int:
                return 2 * n

            job = perdure_app.run(perdure_app.enqueue(double, 21))
            assert perdure_app.run(job.result()) == 42
        """,
        passed=1,
        ini="",
    )


def test_an_app_that_does_not_exist(session: Session) -> None:
    printed = session("def test_it(perdure_app): pass", passed=0, ini="perdure_app = agent:application")
    assert "perdure_app = agent:application: module 'agent' has no attribute 'application'; write it as" in printed


def test_the_path_is_named_where_a_module_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(pytest.UsageError) as refused:
        pytest_plugin._load("agent:app")
    said = str(refused.value)
    assert f"in {tmp_path}" in said
    assert "pythonpath = ." in said
    assert "site-packages" not in said
    (tmp_path / "helper.py").write_text("import nowhere_to_be_found")
    with pytest.raises(pytest.UsageError, match="importing helper failed: No module named 'nowhere_to_be_found'"):
        pytest_plugin._load("helper:app")


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("no_such_module:app", "there is no module 'no_such_module' in .*, and none is installed"),
        ("json.nothing:app", "there is no module 'json.nothing'"),
        ("sys:maxsize", "it is of type int, not a perdure App"),
        ("string:digits", "it is of type str, not a perdure App"),
        ("string", "write it as module:attribute"),
        (":app", "write it as module:attribute"),
    ],
)
def test_what_is_no_app_is_refused(named: str, said: str) -> None:
    with pytest.raises(pytest.UsageError, match=said) as refused:
        pytest_plugin._load(named)
    assert str(refused.value).startswith(f"perdure_app = {named}: ")
