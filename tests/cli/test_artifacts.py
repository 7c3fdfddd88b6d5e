"""`perdure tasks artifacts` and `tasks get --with-files`, with small and with large files."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAM, Perdure

LARGE = bytes(range(256)) * 4096 * 2  # 2 MiB


@pytest.fixture
def task(anywhere: Perdure, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a task with inputs."""
    monkeypatch.setenv("PERDURE_CLI_BLOB_DIR", str(tmp_path / "blobs"))
    anywhere("db", "migrate")
    (place / "large.bin").write_bytes(LARGE)
    (place / "small.txt").write_text("small\n")
    files = ("--file", "large.bin", "--file", "in/small.txt=small.txt")
    return anywhere("enqueue", "--tool", "codex", "--prompt", "go", *files, "-o", "id").out.strip()


def test_files_are_listed_and_saved(anywhere: Perdure, task: str, place: Path) -> None:
    listed = anywhere("tasks", "artifacts", "ls", task, "-o", "json").json["items"]
    assert {file["path"]: file["size"] for file in listed} == {"in/small.txt": 6, "large.bin": len(LARGE)}
    anywhere("tasks", "artifacts", "get", task, "large.bin", "--input", "--to", "copy.bin")
    assert (place / "copy.bin").read_bytes() == LARGE
    again = anywhere("tasks", "artifacts", "get", task, "large.bin", "--input", "--to", "copy.bin", code=2)
    assert "'copy.bin' exists already" in again.err
    assert (
        "cannot write"
        in anywhere("tasks", "artifacts", "get", task, "large.bin", "--input", "--to", "no/x", code=2).err
    )
    (place / "link").symlink_to(place / "elsewhere")
    assert (
        "exists already"
        in anywhere("tasks", "artifacts", "get", task, "large.bin", "--input", "--to", "link", code=2).err
    )
    anywhere("tasks", "artifacts", "get", task, "in/small.txt", "--input", "--to", "x/../copy.txt", code=2)
    assert not list(place.glob("*.part"))
    ended = subprocess.run(
        [*PROGRAM, "tasks", "artifacts", "cat", task, "large.bin", "--input"],
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout == LARGE


def test_a_task_is_shown_with_its_small_files(anywhere: Perdure, task: str) -> None:
    shown = anywhere("tasks", "get", task, "--with-files").out
    assert "small\n" in shown
    assert "too large for this page" in shown
    files = {file["path"]: file for file in anywhere("tasks", "get", task, "--with-files", "-o", "json").only["files"]}
    assert files["in/small.txt"]["text"] == "small\n"
    assert files["large.bin"]["size"] == len(LARGE)
    assert not {"text", "base64"} & set(files["large.bin"])


def test_a_blob_that_this_machine_does_not_have(anywhere: Perdure, task: str, tmp_path: Path, place: Path) -> None:
    [blob] = (path for path in (tmp_path / "blobs").rglob("*") if path.is_file())
    blob.unlink()
    missing = anywhere("tasks", "artifacts", "get", task, "large.bin", "--input", "--to", "copy.bin", code=3)
    assert str(blob) in missing.err.replace("\n", "")
    assert os.uname().nodename in missing.err
    assert [path.name for path in place.iterdir() if "copy" in path.name] == []
    found = anywhere("fsck", code=1)
    assert "blob-missing" in found.out


def test_a_file_that_cannot_be_read_is_refused(perdure: Perdure, place: Path) -> None:
    (place / "folder").mkdir()
    for path, why in (("nosuch", "no such file"), ("folder", "it is a directory")):
        refused = perdure("enqueue", "--tool", "codex", "--prompt", "go", "--file", path, code=2)
        assert f"cannot read '{path}': {why}" in refused.err
    assert not (place / "perdure.db").exists()
