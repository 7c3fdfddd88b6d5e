"""The real CLIs from npm, installed once into the user's cache: pinned, and shared by all checkouts of this machine."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

PACKAGES = ("@openai/codex@0.169.0", "@anthropic-ai/claude-code@2.1.197", "@google/gemini-cli@0.61.0")
NO_NPM = "npm is not installed: NOTHING of the real codex, claude and gemini was tested (install Node 20 or newer)"
INSTALL_SECONDS = 300


def npm() -> str | None:
    """npm, where there is one with node."""
    return shutil.which("npm") if shutil.which("node") else None


def cache() -> Path:
    """PERDURE_TEST_CACHE, else perdure-tests under XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("PERDURE_TEST_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perdure-tests"


def installed() -> Path:
    """The folder with the programs; the first caller installs them, others wait for it."""
    program = npm()
    assert program is not None, NO_NPM
    name = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:8]
    folder = cache() / f"coding-clis-{name}"
    done = folder / "installed"
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"coding-clis-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "package.json").write_text("{}")
            ended = subprocess.run(
                [program, "install", "--ignore-scripts", "--no-audit", "--no-fund", *PACKAGES],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS,
                check=False,
            )
            assert ended.returncode == 0, ended.stdout + ended.stderr
            done.write_text("\n".join(PACKAGES) + "\n")
    return folder / "node_modules" / ".bin"
