"""Tasks at sandbox level L0 on a system that is not Linux, as far as Linux can look like one."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, ctypes, importlib, os, pkgutil, signal, sqlite3, subprocess, sys
import sysconfig, tempfile, urllib.request, uuid, zoneinfo
from pydantic import BaseModel
import structlog

sysconfig.get_config_vars()

sys.platform = "darwin"
for module, names in (
    (os, ("pidfd_open", "memfd_create", "O_PATH", "O_TMPFILE", "sched_getaffinity", "setns", "unshare", "splice", "getrandom")),
    (signal, ("pidfd_send_signal",)),
):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

import perdure.tools
from perdure import Account, App, TaskSpec

for module in pkgutil.walk_packages(perdure.tools.__path__, "perdure.tools."):
    importlib.import_module(module.name)

from perdure.tools import launcher

with open("launch.py", "w") as file:
    file.write(
        "import json, os, runpy, sys\\n"
        "sys.platform = 'darwin'\\n"
        "real = os.listdir\\n"
        "def listdir(path='.'):\\n"
        "    assert not str(path).startswith('/proc'), 'there is no /proc'\\n"
        "    return real(path)\\n"
        "os.listdir = listdir\\n"
        f"runpy.run_path({launcher.__file__!r}, run_name='__main__')\\n"
    )
launcher.__file__ = os.path.abspath("launch.py")


async def main():
    async with App("sqlite:///perdure.db") as app:
        app.serve_tools("shout")
        await app.accounts.add(Account("a", "shout"))
        large = b"x" * 2_000_000
        handle = await app.tasks.enqueue(TaskSpec("shout", "hello", output_spec=("*.txt",)), files={"in.bin": large})
        slow = await app.tasks.enqueue(TaskSpec("shout", "sleep", timeout=0.5, kill_after=0.5), max_attempts=1)
        await app.work(once=True)
        print(await handle.result(timeout=5))
        [run] = await app.tasks.runs(handle.id)
        print("level", run.run.sandbox.requested, run.run.sandbox.effective, run.run.sandbox.missing)
        print(await app.tasks.read_file(handle.id, "out.txt"))
        print("slow", (await slow.get()).error_kind)


asyncio.run(main())
"""


def test_a_task_on_another_system(tmp_path: Path) -> None:
    program = tmp_path / "shout"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo 1.0.0; exit 0; }\nread word\n[ "$word" = sleep ] && sleep 300\n'
        'echo "$word" | tr a-z A-Z | tee out.txt\nwc -c < in.bin >> out.txt\n'
    )
    program.chmod(0o755)
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PERDURE_CLI_WORK_DIR": str(tmp_path / "work"),
        "PERDURE_CLI_TOOLS": json.dumps({"shout": {"program": str(program), "args": ["-"]}}),
    }
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "TaskResult(text='HELLO'" in ended.stdout, ended.stdout + ended.stderr
    assert "level L1 L0" in ended.stdout, "what was asked for is not there, and that is recorded"
    assert r"b'HELLO\n2000000\n'" in ended.stdout
    assert "slow timeout" in ended.stdout
    assert not list((tmp_path / "work").glob("*.run"))
