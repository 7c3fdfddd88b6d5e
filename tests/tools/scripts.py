"""Tools made of a few lines of Python, for what a real CLI cannot be brought to do."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.tools.adapters.base import Adapter
from perdure.tools.adapters.generic import described_tools


def tool(folder: Path, code: str, **table: Any) -> Mapping[str, Adapter]:
    """A tool `script` that runs this code."""
    program = folder / "script.py"
    program.write_text(f"#!{Path(sys.executable).resolve()}\n" + textwrap.dedent(code))
    program.chmod(0o755)
    return described_tools({"script": {"program": str(program), "args": ["-"], **table}})


def alive(pids: list[int]) -> list[int]:
    """Those of these processes that still run."""
    return [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state not in ("Z", "X")


TREE = """
import os, subprocess, sys, time
children = [
    subprocess.Popen(["sleep", "300"]),
    subprocess.Popen(["sleep", "301"], start_new_session=True),
    subprocess.Popen(["setsid", "sh", "-c", "setsid sleep 302 & sleep 303"]),
]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        children = []
        print("grandchild", os.getpid(), flush=True)
        time.sleep(300)
    os._exit(0)
time.sleep(0.3)
print("pids", os.getpid(), *(c.pid for c in children), flush=True)
"""
"""A process with children in its own session, in sessions of their own, and an orphan; it prints their ids."""


def pids_in(output: bytes | bytearray) -> list[int]:
    """The ids that TREE printed."""
    lines = bytes(output).decode().split("\n")
    return [int(word) for line in lines if line.startswith(("pids", "grandchild")) for word in line.split()[1:]]
