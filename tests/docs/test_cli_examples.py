"""examples/cli_fleet.py and examples/cli_patch.py, with a tool of a few lines in the place of a coding CLI."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Account, App, Status
from perdure.config import load_settings
from tests.docs.support import commit, git, load_example, new_repository

TOOL = """
import os, sys
from pathlib import Path
prompt = sys.stdin.read()
if os.environ["API_KEY"] == "used-up":
    sys.exit("You have hit your usage limit. Try again in 2 hours.")
if "Review" in prompt:
    print("OK" if "+42" in Path("change.patch").read_text() else "NOT OK")
elif "description.md" in prompt:
    Path("description.md").write_text(f"{Path('one.py').exists() and 'one' or 'other'}\\n")
    print("described")
else:
    Path("answer.txt").write_text("42\\n")
    print("done")
"""


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Loads an example, whose App has a database and a tool `scribe` in a fresh folder, the current one."""
    program = tmp_path / "scribe"
    program.write_text(f"#!{Path(sys.executable).resolve()}\n" + textwrap.dedent(TOOL))
    program.chmod(0o755)
    monkeypatch.setenv("PERDURE_CLI_WORK_DIR", str(tmp_path / "work"))
    monkeypatch.setenv("FIRST_KEY", "used-up")
    monkeypatch.setenv("SECOND_KEY", "good")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perdure.toml").write_text(f'[cli.tools.scribe]\nprogram = "{program}"\n')

    def load(name: str) -> Any:
        module = load_example(name)
        module.app.configure(load_settings({"database_url": f"sqlite:///{tmp_path}/perdure.db"}))
        return module

    return load


async def add_account(id: str, key: str, slots: int = 1) -> None:
    async with App("sqlite:///perdure.db") as app:
        await app.accounts.add(Account(id, "scribe", env={"API_KEY": f"env:{key}"}, max_concurrency=slots))


@pytest.mark.slow
async def test_a_fleet_goes_on_under_the_other_account(
    ready: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one.py", "two.py", "three.py"):
        Path(name).write_text(f"# {name}\n")
    await add_account("first", "FIRST_KEY", slots=2)
    await add_account("second", "SECOND_KEY")
    files = [Path("one.py"), Path("two.py"), Path("three.py")]
    example = ready("cli_fleet")
    assert await example.main(files, tool="scribe", folder=Path("out")) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "first has met a limit" in said
    assert said.count("retries used: 0") == 3
    assert (Path("out/one.py.md").read_text(), Path("out/two.py.md").read_text()) == ("one\n", "other\n")
    async with example.app as app:
        jobs = (await app.jobs.list(kind="cli.scribe")).items
        assert {(job.status, job.retry_count) for job in jobs} == {(Status.COMPLETED, 0)}, "a quota uses no attempt"
        assert {(await app.tasks.runs(job.id))[-1].account_id for job in jobs} == {"second"}
        first = await app.accounts.get("first")
        assert first.parked_until is not None
    again = ready("cli_fleet")
    assert await again.main(files, tool="scribe", folder=Path("out")) == 0
    async with again.app as app:
        assert await app.jobs.count() == {"COMPLETED": 3}, "what was described is not described again"


@pytest.mark.slow
async def test_a_patch_is_written_reviewed_approved_and_applied(
    ready: Callable[[str], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = new_repository(tmp_path / "project")
    commit(repository, "first", a_txt="1\n")
    await add_account("second", "SECOND_KEY")
    example = ready("cli_patch")
    wanted, _ = example.parse(["Answer it", str(repository), "--writer", "scribe"])
    assert await example.main(wanted, yes=False) == 1, "there is no terminal"
    said = capsys.readouterr().out
    assert "+42" in said
    assert "The review:\nOK" in said
    assert "perdure approvals approve" in said
    assert git(repository, "status", "--porcelain") == ""
    example = ready("cli_patch")
    assert await example.main(wanted, yes=True) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "going on with job" in said
    assert "changed answer.txt" in said
    assert (repository / "answer.txt").read_text() == "42\n"
    async with example.app as app:
        assert await app.jobs.count() == {"COMPLETED": 3}, "each CLI ran once"


async def test_a_patch_that_is_applied_is_not_applied_again(ready: Callable[[str], Any], tmp_path: Path) -> None:
    example, repository = ready("cli_patch"), new_repository(tmp_path / "project")
    commit(repository, "first", a_txt="1\n")
    (repository / "a.txt").write_text("1\n2\n")
    patch = git(repository, "diff") + "\n"
    assert example.apply_patch(str(repository), patch) == ["a.txt"]
    git(repository, "checkout", "a.txt")
    assert example.apply_patch(str(repository), patch) == ["a.txt"]
    assert (repository / "a.txt").read_text() == "1\n2\n"
    (repository / "a.txt").write_text("other\n")
    with pytest.raises(example.Fail, match="does not fit"):
        example.apply_patch(str(repository), patch)
    outside = patch.replace("a/a.txt", "a/../out.txt").replace("b/a.txt", "b/../out.txt")
    with pytest.raises(example.Fail):
        example.apply_patch(str(repository), outside)


async def test_they_say_what_is_missing(
    ready: Callable[[str], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    repository = new_repository(tmp_path / "project")
    commit(repository, "first", a_txt="1\n")

    async def fleet(tool: str) -> str:
        assert await ready("cli_fleet").main([repository / "a.txt"], tool=tool, folder=Path("out")) == 1
        return capsys.readouterr().err

    async def patch(place: Path) -> str:
        example = ready("cli_patch")
        wanted, _ = example.parse(["do it", str(place), "--writer", "scribe"])
        assert await example.main(wanted, yes=True) == 1
        return capsys.readouterr().err

    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert "npm install -g @openai/codex" in await fleet("codex")
    assert "there is no tool 'nosuch'" in await fleet("nosuch")
    assert "perdure accounts add --id first --tool scribe" in await fleet("scribe")
    assert "perdure accounts add --id scribe-main --tool scribe" in await patch(repository)
    (tmp_path / "plain").mkdir()
    assert "no git repository" in await patch(tmp_path / "plain")
    await add_account("first", "NOT_SET")
    assert "the account first takes API_KEY from NOT_SET, which is not set" in await fleet("scribe")
    assert "which is not set" in await patch(repository)
    async with App("sqlite:///perdure.db") as app:
        await app.accounts.disable("first")
    assert "perdure accounts enable first" in await fleet("scribe")
