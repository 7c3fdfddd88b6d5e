"""Where the peers are installed: a folder under the user's cache, one for each set of packages; nothing in this repository."""

import asyncio
import hashlib
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from bench.checks import LeftOut


def cache() -> Path:
    """PERDURE_BENCH_CACHE, else perdure-bench under XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("PERDURE_BENCH_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perdure-bench"


async def installed(
    name: str, packages: Sequence[str], install: Callable[[Path, Sequence[str]], Awaitable[None]]
) -> Path:
    """The folder with exactly these packages; `install` fills it at the first use. Raises LeftOut if that fails."""
    folder = cache() / f"{name}-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:8]}"
    done = folder / "installed"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
            await install(folder, packages)
            done.write_text("\n".join(packages) + "\n")
        except OSError as error:
            raise LeftOut(f"{name} cannot be installed in {folder}: {error}") from None
    return folder


async def command(*words: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a program to its end and return what it printed. Raises LeftOut if it fails."""
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *words, cwd=cwd, env=env, stdout=pipe, stderr=asyncio.subprocess.STDOUT
        )
    except OSError as error:
        raise LeftOut(f"{words[0]} does not start: {error}") from None
    printed = (await process.communicate())[0].decode(errors="replace").strip()
    if process.returncode != 0:
        raise LeftOut(f"{' '.join(map(str, words))} failed: {printed[-500:]}")
    return printed
