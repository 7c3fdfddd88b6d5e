"""Git repositories to write about, and programs and commands to run."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from tests.docs.pages import ROOT, blocks

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("PERDURE_", "GIT_", "RELEASE_NOTES_"))} | {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ana",
    "GIT_AUTHOR_EMAIL": "ana@example.org",
    "GIT_COMMITTER_NAME": "Ana",
    "GIT_COMMITTER_EMAIL": "ana@example.org",
}


def load_example(name: str) -> ModuleType:
    """A fresh copy of an example, with an App of its own."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_programs(page: Path, place: Path) -> None:
    """Put the programs of a page, whose first line names their file, where a reader would."""
    for block in [*blocks(page, "python"), *blocks(page, "py")]:
        (place / block.text.splitlines()[0].removeprefix("# ")).write_text(block.text)


@contextmanager
def a_worker(place: Path, app: str, environment: dict[str, str] = ENVIRONMENT) -> Iterator[None]:
    """`perdure worker start --app ...` in a directory, as in a terminal of its own."""
    command = [sys.executable, "-m", "perdure", "worker", "start", "--app", app]
    with (place / "worker.log").open("w") as log:
        worker = subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) in (0, 143), (place / "worker.log").read_text()


def run_program(place: Path, name: str, environment: dict[str, str] = ENVIRONMENT) -> str:
    """`python name`, while a worker runs; what it prints."""
    command = [sys.executable, name]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr + (place / "worker.log").read_text()
    return done.stdout


def git(repository: Path, *command: str, given: bytes = b"") -> str:
    """Run git, with a made-up user."""
    done = subprocess.run(
        ["git", "-C", repository, *command], input=given, env=ENVIRONMENT, capture_output=True, check=True
    )
    return done.stdout.decode(errors="replace").strip()


def new_repository(path: Path) -> Path:
    """An empty repository."""
    path.mkdir()
    git(path, "init", "--quiet", "--initial-branch=main")
    return path


def commit(repository: Path, message: str | bytes, **files: str) -> str:
    """Commit files (name=content; `_` stands for a dot) and return the commit's id."""
    for name, content in files.items():
        (repository / name.replace("_", ".")).write_text(content)
    git(repository, "add", "--all")
    given = message.encode() if isinstance(message, str) else message
    git(repository, "commit", "--quiet", "--allow-empty", "--allow-empty-message", "--file=-", given=given)
    return git(repository, "rev-parse", "HEAD")
