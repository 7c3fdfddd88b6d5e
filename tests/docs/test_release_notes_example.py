"""examples/release_notes.py on real repositories: ordinary ones, and those that are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import App, Fail, JobFailed
from perdure.config import load_settings
from tests.docs.pages import ROOT
from tests.docs.support import ENVIRONMENT, commit, git, load_example, new_repository

example: Any = load_example("release_notes")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A tag and five commits after it."""
    path = new_repository(tmp_path / "kettle")
    commit(path, "first", a_txt="1\n")
    git(path, "tag", "v1.0")
    commit(path, "feat(lid): open by itself", a_txt="1\n2\n")
    commit(path, "fix: the whistle\n\nBREAKING CHANGE: it whistles twice", b_txt="1\n")
    commit(path, "describe the handle", README_md="x\n")
    commit(path, "boiler: repair the leak", a_txt="1\n")
    commit(path, "turn the light off", c_txt="1\n")
    return path


async def written(repository: Path, output: Path, *, edited: Any = ...) -> str:
    """Run the job in this process, approve it, and return the file's text. Raises JobFailed."""
    app: App = load_example("release_notes").app
    app.configure(load_settings({"database_url": "memory:"}))
    async with app:
        brief = {"repository": str(repository), "output": str(output), "limit": 30}
        handle = await app.enqueue("release_notes", brief)
        await app.work(once=True)
        for approval in (await app.approvals.list(job_id=handle.id)).items:
            await app.approve(approval.id, edited=edited)
            await app.work(once=True)
        await handle.result(timeout=5)
    return output.read_text(encoding="utf-8")


async def test_the_notes_of_an_ordinary_repository(repository: Path, tmp_path: Path) -> None:
    text = await written(repository, tmp_path / "NOTES.md")
    ids = git(repository, "log", "--format=%h", "--abbrev=10").splitlines()
    date = git(repository, "show", "-s", "--format=%cs", "HEAD")
    assert text == (
        f"# kettle Unreleased ({date})\n\n"
        "5 commits by 1 person since v1.0, 4 lines added, 1 removed.\n\n"
        f"## Breaking changes\n\n- The whistle ({ids[3]})\n\n"
        f"## Added\n\n- Open by itself ({ids[4]})\n\n"
        f"## Changed\n\n- Turn the light off ({ids[0]})\n\n"
        f"## Fixed\n\n- Boiler: repair the leak ({ids[1]})\n\n"
        f"## Documentation\n\n- Describe the handle ({ids[2]})\n"
    )


async def test_what_the_decider_wrote_is_what_is_published(repository: Path, tmp_path: Path) -> None:
    edited = {"title": "mine", "text": "my own words\n"}
    assert await written(repository, tmp_path / "NOTES.md", edited=edited) == "my own words\n"


def test_a_tag_on_the_head_names_the_version(repository: Path) -> None:
    git(repository, "tag", "v1.1")
    scope = example.find_range(str(repository), 30)
    assert (scope.version, scope.since, len(scope.commits)) == ("v1.1", "v1.0", 5)


def test_without_a_tag_the_newest_commits_are_taken(repository: Path) -> None:
    git(repository, "tag", "--delete", "v1.0")
    scope = example.find_range(str(repository), 4)
    assert (scope.since, len(scope.commits), scope.left_out) == (None, 4, 2)
    assert scope.commits[0] == git(repository, "rev-parse", "HEAD")


async def test_a_repository_with_one_commit(tmp_path: Path) -> None:
    path = new_repository(tmp_path / "one")
    commit(path, "only this", a_txt="1\n")
    assert "1 commit by 1 person, 1 line added" in await written(path, tmp_path / "NOTES.md")


async def test_a_shallow_clone_does_not_count_the_whole_tree(repository: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth=2", repository.as_uri(), str(clone))
    text = await written(clone, tmp_path / "NOTES.md")
    assert "2 commits by 1 person, 1 line added, 0 removed." in text


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_messages_in_any_bytes(tmp_path: Path, encoding: str) -> None:
    path = new_repository(tmp_path / "bytes")
    message = "café \x1b[31m au lait".encode(encoding).replace(b"\0", b"")
    id = commit(path, message, a_txt="1\n")
    change = example.read_commit(str(path), id)
    assert change.subject.isprintable()
    if encoding == "latin-1":
        assert change.subject == "Café  [31m au lait"


def test_a_commit_without_a_message_or_a_change(tmp_path: Path) -> None:
    path = new_repository(tmp_path / "silent")
    change = example.read_commit(str(path), commit(path, ""))
    assert (change.subject, change.files, change.kind) == ("(no message)", 0, "Changed")


def test_file_names_of_every_kind(tmp_path: Path) -> None:
    path = new_repository(tmp_path / "names")
    (path / "docs").mkdir()
    (path / "docs" / "tab\there\nand there").write_text("1\n2\n")
    (path / "docs" / "naïve").write_bytes(b"\0\1")  # a binary file
    change = example.read_commit(str(path), commit(path, "words about it"))
    assert (change.kind, change.files, change.added) == ("Documentation", 2, 2)


def test_a_merge_is_described_by_its_branch(tmp_path: Path) -> None:
    path = new_repository(tmp_path / "merged")
    commit(path, "first", a_txt="1\n")
    git(path, "checkout", "--quiet", "-b", "side")
    commit(path, "add side", b_txt="1\n")
    git(path, "checkout", "--quiet", "main")
    git(path, "merge", "--quiet", "--no-ff", "--message=Merge side", "side")
    assert len(example.find_range(str(path), 30).commits) == 2
    assert example.read_commit(str(path), git(path, "rev-parse", "HEAD")).added == 1


def test_a_bare_repository(repository: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(bare))
    assert example.find_range(str(bare), 30).project == "kettle"


def test_a_hooks_environment_does_not_mislead(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert example.find_range(str(repository), 30).since == "v1.0"


@pytest.mark.parametrize(
    ("kind", "said"),
    [("missing", "is not a directory"), ("plain", "is not a git repository"), ("empty", "has no commits yet")],
)
async def test_what_is_no_repository_fails_for_good_and_says_why(tmp_path: Path, kind: str, said: str) -> None:
    path = tmp_path / kind
    if kind == "plain":
        path.mkdir()
    elif kind == "empty":
        new_repository(path)
    with pytest.raises(JobFailed, match=said) as caught:
        await written(path, tmp_path / "NOTES.md")
    assert caught.value.job.status == "FAILED"
    assert caught.value.job.attempt == 1
    assert str(path) in caught.value.message


async def test_a_file_that_cannot_be_written_fails_for_good(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="is not a directory"):
        await written(repository, tmp_path / "nowhere" / "NOTES.md")


def test_git_that_is_not_installed(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Fail, match="git is not installed"):
        example.find_range(str(repository), 30)


# -- as a program ---------------------------------------------------------------------------------------------------------


def start(repository: Path, directory: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start the example as a program, in a directory of its own."""
    return subprocess.Popen(
        [sys.executable, ROOT / "examples" / "release_notes.py", repository, *arguments],
        cwd=directory,
        env={**ENVIRONMENT, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_program_writes_the_notes(repository: Path, tmp_path: Path) -> None:
    program = start(repository, tmp_path, "--yes")
    said, _ = program.communicate(timeout=60)
    assert program.returncode == 0, said
    assert "5 commits" in (tmp_path / "RELEASE_NOTES.md").read_text()


def test_the_program_leaves_the_question_open_without_a_terminal(repository: Path, tmp_path: Path) -> None:
    program = start(repository, tmp_path)
    said, _ = program.communicate(timeout=60)
    assert program.returncode == 1
    assert "perdure approvals approve" in said
    assert not (tmp_path / "RELEASE_NOTES.md").exists()


@pytest.mark.crash
def test_the_program_goes_on_where_it_was_killed(repository: Path, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    program = start(repository, tmp_path, "--yes", RELEASE_NOTES_PACE="2", RELEASE_NOTES_WITNESS=str(witness))
    assert program.stdout is not None
    while "recorded read[" not in program.stdout.readline():
        assert program.poll() is None
    os.kill(program.pid, signal.SIGKILL)
    program.communicate(timeout=20)
    again = start(repository, tmp_path, "--yes", RELEASE_NOTES_WITNESS=str(witness))
    said, _ = again.communicate(timeout=60)
    assert again.returncode == 0, said
    assert "going on with job" in said
    ran = [line.split()[0] for line in witness.read_text().splitlines()]
    assert len(set(ran)) == 9
    assert len(ran) <= 10  # the step that the kill cut off ran again, no other
