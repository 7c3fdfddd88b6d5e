"""`perdure demo --tool`: with the real codex against the API of this machine, and where something is missing."""

from pathlib import Path

import pytest

from perdure.cli.demo_tool import LOGINS, run_tool_demo
from tests.docs.support import commit, new_repository
from tests.tools.api import Api
from tests.tools.conftest import KEY


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key, no login, and no person."""
    for login in LOGINS.values():
        for name in (*login.keys, login.url, login.home):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CI", "1")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = new_repository(tmp_path / "kettle")
    commit(made, "feat: a lid", lid="1\n")
    return made


@pytest.mark.crash
@pytest.mark.slow
def test_the_tour(
    tmp_path: Path,
    repository: Path,
    programs: Path,
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    command = "sleep 1; printf notes > RELEASE_NOTES.md".replace(" ", "~")
    monkeypatch.setenv("OPENAI_BASE_URL", api.url(f"write;cmd={command.replace(';', '%3B')}") + "/v1")
    code = run_tool_demo("auto", str(repository), directory=str(tmp_path), auto_approve=False)
    said = capsys.readouterr().out
    assert code == 0, said
    assert "while codex runs" in said
    assert said.count("\n  ok ") == 4
    (made,) = tmp_path.glob("perdure-demo-*")
    assert (made / "RELEASE_NOTES.md").read_text() == "notes"
    for file in made.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), f"the key is in {file.name}"


def test_nothing_is_installed(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert run_tool_demo("codex", str(repository), directory=None, auto_approve=True) == 1
    said = capsys.readouterr().err
    assert "codex is not installed (install it: npm install -g @openai/codex)" in said
    assert "perdure demo" in said


def test_it_has_no_key(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in LOGINS:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert run_tool_demo("auto", str(repository), directory=None, auto_approve=True) == 1
    said = capsys.readouterr().err
    for name, login in LOGINS.items():
        assert f"{name}: it has no key: {login.keys[0]}" in said
    assert run_tool_demo("whisper", str(repository), directory=None, auto_approve=True) == 1
    assert "knows no tool 'whisper'" in capsys.readouterr().err


def test_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "codex").write_text("#!/bin/sh\n")
    (tmp_path / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert run_tool_demo("codex", str(tmp_path), directory=None, auto_approve=True) == 1
    assert "is not a git repository with commits" in capsys.readouterr().err
