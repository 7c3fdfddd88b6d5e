"""A small git repository to try things on: python examples/teapot.py DIRECTORY

A tag and 22 commits after it by three people, with every kind of message that release notes sort; one is not UTF-8. The same
commits, down to their ids, every time. `perdure demo` uses it where it finds no repository of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMITS = """
first steps|README.md
feat: keep tea warm for an hour|src/teapot.py
fix: lid no longer rattles at low pressure|src/lid.py
Add a spout that does not drip|src/spout.py
docs: how to descale|docs/descale.md
perf: boil water in parallel|src/boiler.py
test: cover the empty pot|tests/test_pot.py
feat!: temperatures are in Celsius|src/thermo.py
Fix café mode on voltage drops|src/cafe.py
Remove the whistle|src/whistle.py
ci: run on every push|.ci/run
Support oolong and white tea|src/leaves.py
thermo: correct the offset at altitude|src/thermo.py
refactor: one lid class|src/lid.py
feat: say when the tea is ready|src/ready.py
Prevent double brewing of one pot|src/teapot.py
docs: pictures for the quick start|docs/start.md
Update the table of steeping times|src/leaves.py
fix: count cups, not sips|src/cups.py
chore: tidy the shelf|setup.cfg
feat: pour by weight|src/pour.py
Deprecate the sugar API|src/sugar.py
speed up start with a cold kettle|src/boiler.py
"""
TAG = "v0.1.0"
BEGAN = 1_760_000_000


def make(path: Path) -> None:
    """Make the repository at `path`, which must not exist yet. Raises RuntimeError with what git says."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for command, given in (
        (["init", "--quiet", str(path)], b""),
        (["-C", str(path), "symbolic-ref", "HEAD", "refs/heads/main"], b""),
        (["-C", str(path), "fast-import", "--quiet"], stream()),
    ):
        done = subprocess.run(["git", *command], input=given, env=environment, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"git {command[-2]} failed: {done.stderr.decode(errors='replace').strip()}")


def stream() -> bytes:
    """The commits as `git fast-import` reads them."""
    written = bytearray()
    for number, line in enumerate(COMMITS.strip().splitlines(), 1):
        subject, file = line.split("|")
        author = ("Ana", "Bo", "Chidi")[number % 3]
        message = f"{subject}\n".encode("latin-1")  # and git does not know that, as happens in real repositories
        content = f"{subject}\n".encode() * number
        written += f"commit refs/heads/main\ncommitter {author} <{author}@example.org> ".encode()
        written += f"{BEGAN + 3600 * number} +0000\ndata {len(message)}\n".encode() + message
        written += f"M 100644 inline {file}\ndata {len(content)}\n".encode() + content + b"\n"
        if number == 1:
            written += f"reset refs/tags/{TAG}\nfrom refs/heads/main\n\n".encode()
    return bytes(written)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python teapot.py DIRECTORY")
    make(Path(sys.argv[1]))
