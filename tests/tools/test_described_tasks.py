"""A tool that a table of perdure.toml adds: its tasks from the command line, and from an App."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from perdure import Account, App, RunClass, Status, TaskSpec, ToolMissing, UnknownTool
from perdure.cli.main import run

SCRIPT = """#!/bin/sh
[ "$1" = --version ] && { echo "shout 1.0.0"; exit 0; }
tr a-z A-Z < "$2" | tee out.txt
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "shout"
    program.write_text(SCRIPT)
    program.chmod(0o755)
    (tmp_path / "perdure.toml").write_text(
        f"""[cli]
work_dir = "{tmp_path}/work"
max_attempts = 1

[cli.tools.shout]
program = "{program}"
args = ["--file", "{{prompt_file}}"]
stdin = false
"""
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_a_tool_without_code(place: Path) -> None:
    async with App(f"sqlite:///{place}/perdure.db") as app:
        app.serve_tools("shout")
        await app.accounts.add(Account("a", "shout"))
        handle = await app.tasks.enqueue(TaskSpec("shout", "hello", output_spec=("*.txt",)))
        await app.work(once=True)
        job = await handle.get()
        assert job.status is Status.COMPLETED, job.error_message
        result = await handle.result(timeout=5)
        assert (result.text, result.files) == ("HELLO", {"out.txt": 5})
        assert await app.tasks.read_file(handle.id, "out.txt") == b"HELLO"
        [run] = await app.tasks.runs(handle.id)
        assert run.run.sandbox.requested == "L1"
        with pytest.raises(UnknownTool, match="codex, claude, gemini, shout"):
            await app.tasks.enqueue(TaskSpec("whisper", "hello"))


async def test_a_task_that_fails_is_a_dead_letter_with_its_class(place: Path) -> None:
    (place / "shout").write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1.0.0\nexit 3\n')
    async with App(f"sqlite:///{place}/perdure.db") as app:
        app.serve_tools("shout")
        await app.accounts.add(Account("a", "shout"))
        handle = await app.tasks.enqueue(TaskSpec("shout", "hello"))
        await app.work(once=True)
        job = await handle.get()
        assert (job.status, job.error_kind) == (Status.DEADLETTER, "unknown")


def git(folder: Path, *args: str) -> str:
    ended = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout


async def test_a_task_works_in_a_copy_of_a_repository(place: Path) -> None:
    repo = place / "repo"
    repo.mkdir()
    git(repo, "init", "--quiet", "--initial-branch=main")
    (repo / "a.txt").write_text("one\n")
    git(repo, "add", "a.txt")
    git(repo, "commit", "--quiet", "-m", "one")
    script = (
        '#!/bin/sh\n[ "$1" = --version ] && { echo 1.0.0; exit 0; }\necho two >> a.txt\necho new > b.txt\n'
        f"git config core.fsmonitor 'touch {place}/ran'\ngit config diff.external 'touch {place}/ran'\n"
        "echo '* diff=x filter=x' > .gitattributes\n"
        f"git config diff.x.textconv 'touch {place}/ran'\ngit config filter.x.clean 'touch {place}/ran'\n"
        f"printf '#!/bin/sh\\ntouch {place}/ran\\n' > .git/hooks/post-index-change\nchmod +x .git/hooks/*\necho done\n"
    )
    (place / "shout").write_text(script)
    async with App(f"sqlite:///{place}/perdure.db") as app:
        app.serve_tools("shout")
        await app.accounts.add(Account("a", "shout"))
        handle = await app.tasks.enqueue(TaskSpec("shout", "hello", repo=str(repo), ref="main"))
        await app.work(once=True)
        job = await handle.get()
        assert job.status is Status.COMPLETED, job.error_message
        diff = (await app.tasks.read_file(handle.id, "task.diff")).decode()
        assert "+two" in diff
        assert "+new" in diff
        assert not (place / "ran").exists(), "git ran a program that the task had named"
        assert git(repo, "status", "--porcelain") == ""
        git(repo, "config", "core.hooksPath", "/dev/null")
        subprocess.run(["git", "apply", "-"], cwd=repo, input=diff, text=True, check=True)
        assert (repo / "b.txt").read_text() == "new\n"


async def test_inputs_that_stay_as_they_are_are_no_part_of_the_diff(place: Path) -> None:
    repo = place / "repo"
    repo.mkdir()
    git(repo, "init", "--quiet", "--initial-branch=main")
    (repo / "a.txt").write_text("one\n")
    git(repo, "add", "a.txt")
    git(repo, "commit", "--quiet", "-m", "one")
    (place / "shout").write_text("#!/bin/sh\necho two >> a.txt\necho more >> in/changed.txt\necho done\n")
    async with App(f"sqlite:///{place}/perdure.db") as app:
        app.serve_tools("shout")
        await app.accounts.add(Account("a", "shout"))
        files = {"in/same *.txt": b"given\n", "in/changed.txt": b"given\n"}
        handle = await app.tasks.enqueue(TaskSpec("shout", "hello", repo=str(repo)), files=files)
        await app.work(once=True)
        diff = (await app.tasks.read_file(handle.id, "task.diff")).decode()
    assert [line for line in diff.splitlines() if line.startswith("+++")] == ["+++ b/a.txt", "+++ b/in/changed.txt"]
    assert "+given\n+more\n" in diff
    subprocess.run(["git", "apply", "--check", "-"], cwd=repo, input=diff, text=True, check=True)


@pytest.mark.parametrize("change", [{"repo": "/usr/share"}, {"repo": "/nonexistent"}, {"ref": "nosuch"}])
async def test_a_repository_that_cannot_be_used_fails_the_task(place: Path, change: dict[str, Any]) -> None:
    repo = place / "repo"
    repo.mkdir()
    git(repo, "init", "--quiet")
    git(repo, "commit", "--quiet", "--allow-empty", "-m", "one")
    async with App(f"sqlite:///{place}/perdure.db") as app:
        app.serve_tools("shout")
        await app.accounts.add(Account("a", "shout"))
        handle = await app.tasks.enqueue(replace(TaskSpec("shout", "hello", repo=str(repo)), **change))
        await app.work(once=True)
        job = await handle.get()
        assert (job.status, job.error_kind) == (Status.FAILED, "repository-refused")
        assert change.get("repo", "nosuch") in (job.error_message or "")
        assert ("is no git repository" in (job.error_message or "")) == ("repo" in change)


def test_from_the_command_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is shown to a person: an account that is tried, hints where none can run a task, and the answer of one."""

    def said(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run([*words]) == code, capsys.readouterr().err
        both = capsys.readouterr()
        return both.out + both.err

    assert "it waits until there is an account of shout: " in said("enqueue", "--tool", "shout", "--prompt", "hello")
    said("accounts", "add", "--id", "a", "--tool", "shout")
    shown = said("accounts", "test", "a")
    assert "ok" in shown.split()
    assert "L1" in shown or "landlock" in shown
    said("accounts", "disable", "a")
    assert "perdure accounts enable a" in said("enqueue", "--tool", "shout", "--prompt", "hello")
    said("accounts", "enable", "a")
    assert "it waits" not in said("enqueue", "--tool", "shout", "--prompt", "hello")
    warned = said("worker", "start", "--accounts", "a,nosuch", "--tools", "shout", "--once")
    assert "no account has the id or group name nosuch yet" in warned
    assert said("tasks", "ls", "--status", "completed").count("HELLO\n") == 3
    (place / "shout").write_text("#!/bin/sh\nexit 3\n")
    assert "unknown" in said("accounts", "test", "a", code=1)


async def test_a_tool_that_writes_to_its_credential_fails_the_test_of_its_account(place: Path) -> None:
    (place / "login").write_text("{}")
    (place / "shout").write_text('#!/bin/sh\nchmod u+w "$HOME/.credential"\necho new > "$HOME/.credential"\necho ok\n')
    async with App(f"sqlite:///{place}/perdure.db") as app:
        app.serve_tools("shout")
        await app.accounts.add(Account("a", "shout", cred_ref=str(place / "login")))
        run = await app.accounts.test("a")
        assert (run.outcome, run.detail) == (RunClass.FATAL, "credential")
        assert "wrote to its credential" in run.message
        handle = await app.tasks.enqueue(TaskSpec("shout", "hello"))
        with capture_logs() as lines:
            await app.work(once=True)
        assert await handle.status() is Status.COMPLETED
        assert [line["account"] for line in lines if "wrote to its credential" in line["event"]] == ["a"]
    assert (place / "login").read_text() == "{}"


async def test_an_account_is_tried(place: Path) -> None:
    async with App(f"sqlite:///{place}/perdure.db") as app:
        await app.accounts.add(Account("a", "shout"))
        run = await app.accounts.test("a")
        assert (run.ok, run.final_text) == (True, "REPLY WITH THE WORD OK AND DO NOTHING ELSE.")
        (place / "shout").unlink()
        with pytest.raises(ToolMissing):
            await app.accounts.test("a")
        assert list((place / "work").iterdir()) == []
