"""Tasks whose CLI, or whose repository, means harm: what leaves the workspace, what is stored, what is shown."""

import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from perdure import Account, App, Status, TaskSpec, UnsafePath
from perdure.runtime.handle import Handle
from perdure.tools import output_files
from perdure.tools.live_output import MAX_BYTES
from perdure.tools.outputs import find_outputs

KEY = "sk-attack-0123456789abcdef"
OUTSIDE = "what is outside of the workspace"


class Place:
    """A database with one account of a tool `script`, whose program each test writes."""

    def __init__(self, folder: Path, app: App) -> None:
        self.folder = folder
        self.app = app

    async def run(self, code: str, *, files: Any = None, **task: Any) -> Handle[Any]:
        """Run a task whose program is this."""
        program = self.folder / "script"
        check = "import sys\nif '--version' in sys.argv: print('1.0.0'); sys.exit()\n"
        program.write_text(f"#!{Path(sys.executable).resolve()}\n" + check + textwrap.dedent(code))
        program.chmod(0o755)
        handle = await self.app.tasks.enqueue(TaskSpec("script", "go", **task), files=files, max_attempts=1)
        await self.app.work(once=True)
        return handle

    async def outputs(self, handle: Handle[Any]) -> dict[str, bytes]:
        """What was collected."""
        paths = [file.path for file in await self.app.tasks.files(handle.id) if not file.is_input]
        return {path: await self.app.tasks.read_file(handle.id, path) for path in paths}

    def perdure(self, *args: str) -> str:
        """What a command prints, on both streams."""
        command = [sys.executable, "-m", "perdure", *args, "--db", f"sqlite:///{self.folder}/perdure.db"]
        ended = subprocess.run(command, capture_output=True, cwd=self.folder, timeout=60, check=False)
        return (ended.stdout + ended.stderr).decode()


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERDURE_CLI_WORK_DIR", str(tmp_path / "work"))
    monkeypatch.setenv("PERDURE_CLI_SANDBOX", "L0")  # what the sandbox would hinder is to reach the checks
    monkeypatch.setenv("PERDURE_CLI_FILES_LIMIT", "200MiB")
    monkeypatch.setenv("THE_KEY", KEY)
    table = {"script": {"program": str(tmp_path / "script"), "args": ["-"]}}
    monkeypatch.setenv("PERDURE_CLI_TOOLS", json.dumps(table))
    (tmp_path / "script").write_text("")
    (tmp_path / "script").chmod(0o755)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "passwords.txt").write_text(OUTSIDE)
    app = App(f"sqlite:///{tmp_path}/perdure.db")
    async with app:
        app.serve_tools("script")
        await app.accounts.add(Account("a", "script", env={"MY_KEY": "env:THE_KEY"}))
        yield Place(tmp_path, app)


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "a//b", ".git/config", "a\nb", "a\x1b[2J", ""])
async def test_paths_that_are_refused_before_anything_is_stored(place: Place, path: str) -> None:
    with pytest.raises(UnsafePath):
        await place.app.tasks.enqueue(TaskSpec("script", "go"), files={path: b"x" * 2_000_000})
    with pytest.raises(UnsafePath):
        TaskSpec("script", "go", output_spec=(path,))
    assert not (place.folder / "perdure.db-blobs").exists()


async def test_nothing_outside_of_the_workspace_is_collected(place: Place) -> None:
    code = f"""
    import os, socket
    outside = {str(place.folder / "outside")!r}
    open("good.txt", "w").write("good")
    os.symlink(outside + "/passwords.txt", "link.txt")
    os.symlink(outside, "folder")
    os.symlink("good.txt", "link to good.txt")
    os.link(outside + "/passwords.txt", "hard.txt")
    os.mkfifo("fifo.txt")
    socket.socket(socket.AF_UNIX).bind("socket.txt")
    open("new\\nline.txt", "w").write("x")
    open("terminal\\x1b[2J.txt", "w").write("x")
    print("done")
    """
    handle = await place.run(code, output_spec=("good.txt", "*.txt", "folder/**", "**/passwords.txt"))
    [run] = await place.app.tasks.runs(handle.id)
    assert (str(run.run.outcome), run.run.detail) == ("missing_output", "missing")
    assert run.run.message == "it ended without writing folder/**, **/passwords.txt", "no link is followed"
    handle = await place.run(code, output_spec=("*.txt",))
    assert await place.outputs(handle) == {"good.txt": b"good"}
    [run] = await place.app.tasks.runs(handle.id)
    assert (str(run.run.outcome), run.run.detail) == ("missing_output", "refused")
    assert "hard.txt: it is a hard link" in run.run.message
    assert run.run.message.startswith("3 files of output_spec were not collected")
    shown = place.perdure("tasks", "get", str(handle.id)) + place.perdure("jobs", "events", str(handle.id))
    assert "\x1b" not in shown
    assert OUTSIDE not in shown


async def test_devices_are_not_read(place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    code = """
    import os, stat
    os.mknod("zero.txt", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    open("good.txt", "w").write("good")
    print("done")
    """
    handle = await place.run(code, output_spec=("*.txt",))
    assert (await place.outputs(handle)).keys() <= {"good.txt"}


@pytest.mark.parametrize("swapped", ["file", "folder"])
async def test_a_file_that_becomes_a_link_while_it_is_collected(
    place: Place, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    """As by a process that the launcher could not end."""

    def swap(workspace: Path, spec: Any) -> Any:
        found = find_outputs(workspace, spec)
        if swapped == "file":
            (workspace / "a" / "passwords.txt").unlink()
            (workspace / "a" / "passwords.txt").symlink_to(place.folder / "outside" / "passwords.txt")
        else:
            shutil.rmtree(workspace / "a")
            (workspace / "a").symlink_to(place.folder / "outside")
        return found

    monkeypatch.setattr(output_files, "find_outputs", swap)
    code = "import os; os.mkdir('a'); open('a/passwords.txt', 'w').write('mine'); print('done')"
    handle = await place.run(code, output_spec=("a/passwords.txt",))
    assert await place.outputs(handle) == {}
    assert (await handle.get()).error_kind == "missing_output"


async def test_an_input_is_not_written_through_a_link_of_the_repository(place: Place) -> None:
    repo = place.folder / "repo"
    repo.mkdir()
    (repo / "out").symlink_to(place.folder / "outside")
    (repo / "file").symlink_to(place.folder / "outside" / "passwords.txt")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for args in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "one"]):
        subprocess.run([*git, *args], cwd=repo, check=True)
    for path in ("out/passwords.txt", "file"):
        handle = await place.run("print('done')", repo=str(repo), files={path: b"overwritten"})
        job = await handle.get()
        assert (job.status, job.error_kind) == (Status.FAILED, "unsafe-path")
        assert f"'{path}'" in (job.error_message or "")
    assert (place.folder / "outside" / "passwords.txt").read_text() == OUTSIDE


async def test_files_that_are_larger_than_the_disk(place: Place) -> None:
    code = """
    import os
    for name in ("a", "b"):
        with open(f"sparse-{name}", "wb") as file:
            file.truncate(3 << 30)
    open("c", "w").write("small")
    print("done")
    """
    handle = await place.run(code, output_spec=("*",))
    [run] = await place.app.tasks.runs(handle.id)
    assert (str(run.run.outcome), run.run.detail) == ("missing_output", "refused")
    assert "sparse-a: it has 3,221,225,472 bytes; the limit for all files of a run is 209,715,200" in run.run.message
    assert await place.outputs(handle) == {"c": b"small"}
    assert not (place.folder / "perdure.db-blobs").exists()


async def test_a_hundred_thousand_files(place: Place) -> None:
    code = """
    import os
    for folder in range(100):
        os.mkdir(f"d{folder}")
        for n in range(1000):
            os.close(os.open(f"d{folder}/{n}", os.O_WRONLY | os.O_CREAT))
    print("done")
    """
    handle = await place.run(code, output_spec=("**",))
    [run] = await place.app.tasks.runs(handle.id)
    assert (str(run.run.outcome), run.run.detail) == ("missing_output", "refused")
    assert run.run.message.startswith("99000 files of output_spec were not collected: ")
    assert "there are more than 1,000 files" in run.run.message
    assert len(run.run.message) < 2000
    assert len(await place.app.tasks.files(handle.id)) == 1000
    assert list((place.folder / "work").glob("*.run")) == []


async def test_a_flood_of_output(place: Place) -> None:
    code = r"""
    import sys
    sys.stdout.buffer.write(b"begin\n")
    piece = b"0123456789abcde\n" * 65536
    for _ in range(256):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.write(b"the end\n")
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    handle = await place.run(code)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024 < 120  # MiB
    [run] = await place.app.tasks.runs(handle.id)
    stored = b"".join([chunk.content async for chunk in place.app.tasks.output(handle.id)])
    assert len(stored) == MAX_BYTES
    more = gzip.decompress(await place.app.tasks.read_file(handle.id, "task.stdout.gz"))
    assert stored + more == b"begin\n" + b"0123456789abcde\n" * (65536 * 256) + b"the end\n"
    assert run.run.stdout.text.startswith("begin\n0123")
    assert run.run.stdout.text.endswith("cde\nthe end\n")
    assert len(run.run.stdout.text) < 140_000


async def test_output_that_controls_a_terminal(place: Place) -> None:
    code = r"""
    text = "\x1b]0;title\x07\x1b[2Jcleared\x9b1m\u202e"
    open("a.txt", "w").write(text)
    print(text)
    """
    handle = await place.run(code, output_spec=("a.txt",))
    assert await handle.status() is Status.COMPLETED
    id = str(handle.id)
    for args in (
        ("tasks", "get", id, "--with-files"),
        ("tasks", "logs", id),
        ("tasks", "artifacts", "ls", id),
        ("jobs", "get", id),
        ("jobs", "events", id),
    ):
        shown = place.perdure(*args)
        assert "Traceback" not in shown
        assert not set("\x1b\x07\x9b") & set(shown), args
    assert "cleared" in place.perdure("tasks", "logs", id)
    assert place.perdure("tasks", "artifacts", "cat", id, "a.txt").startswith("\x1b]0;"), "a pipe gets each byte"


LEAKS = r"""
import json, os, sys, time
key = os.environ["MY_KEY"]
for piece in (key[:7], key[7:20], key[20:]):
    sys.stdout.write(piece); sys.stdout.flush(); time.sleep(0.05)
print()
print(key, json.dumps({"key": key}), file=sys.stderr)
open("text.txt", "w").write(("x" * 65530 + key) * 40)
open("tracked.txt", "a").write(f"key = {key}\n")
os.mkdir(key)
if sys.stdin.read() and os.path.exists("also-binary"):
    open("binary.bin", "wb").write(b"\0\1" + key.encode() + b"\0")
    open(key + "/b.txt", "w").write("x")
sys.stdout.write(("y" * 100 + key + "\n") * 90000)
print("the answer is", key)
"""


def stored(folder: Path) -> bytes:
    """All that is in the database and in the blob directory."""
    everything = b""
    for path in (*folder.glob("perdure.db*"), *folder.glob("perdure.db-blobs/**/*")):
        if path.is_file():
            content = path.read_bytes()
            everything += gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    return everything


@pytest.mark.parametrize("refused", [False, True], ids=["text", "binary"])
async def test_the_key_is_nowhere(place: Place, refused: bool) -> None:
    repo = place.folder / "repo"
    repo.mkdir()
    (repo / "tracked.txt").write_text("tracked\n")
    if refused:
        (repo / "also-binary").write_text("")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for args in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "one"]):
        subprocess.run([*git, *args], cwd=repo, check=True)
    with capture_logs() as logs:
        handle = await place.run(
            LEAKS, output_spec=("*.txt", "*.bin", "**/b.txt") if refused else ("*.txt",), repo=str(repo)
        )
    [run] = await place.app.tasks.runs(handle.id)
    outputs = await place.outputs(handle)
    assert outputs["text.txt"] == (b"x" * 65530 + b"[secret]") * 40
    assert b"+key = [secret]" in outputs["task.diff"]
    assert b"y[secret]" in gzip.decompress(outputs["task.stdout.gz"])
    assert run.run.stdout.text.startswith("[secret]\n")
    if refused:
        assert run.run.detail == "refused"
        assert "binary.bin: it has a secret" in run.run.message
        assert "[secret]/b.txt: its name has a secret" in run.run.message
    else:
        assert run.run.final_text.endswith("the answer is [secret]")
    await place.app.close()
    assert KEY.encode() not in stored(place.folder)
    assert b"[secret]" in stored(place.folder)
    assert KEY not in json.dumps(logs, default=str)
    assert "run ended" in json.dumps(logs, default=str)
    shown = place.perdure("tasks", "get", str(handle.id), "-o", "json") + place.perdure("tasks", "logs", str(handle.id))
    assert KEY not in shown
    assert not list((place.folder / "work").glob("*.run"))
