"""A tool that a table of perdure.toml adds: its tasks from the command line, and from an App."""

from pathlib import Path

import pytest

from perdure import Account, App, Status, TaskSpec, UnknownTool

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
