"""Programs of tools: where they are, and which version."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from perdure.model.errors import ToolMissing, ToolUnsupported
from perdure.tools.adapters.base import Adapter, Program
from perdure.tools.settings import CliSettings

PROBE_SECONDS = 30.0
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class Installed(NamedTuple):
    """A program, and its version as text."""

    program: Program
    version: str


def is_there(adapter: Adapter, settings: CliSettings) -> bool:
    """Whether the program of a tool is on this machine; its version is not asked for."""
    return shutil.which(adapter.program, path=search_path(settings)) is not None


def missing(adapter: Adapter, settings: CliSettings) -> ToolMissing:
    """The program of a tool is not on this machine."""
    return ToolMissing(
        f"{adapter.program} is not installed on this machine: it is in no folder of PATH ({search_path(settings)})",
        hint=f"install it: {adapter.install}",
    )


async def installed(adapter: Adapter, settings: CliSettings) -> Installed:
    """The program of a tool on this machine; its version is asked for once per file.

    Raises ToolMissing saying how to install it, ToolUnsupported saying which versions are supported.
    """
    path = search_path(settings)
    found = shutil.which(adapter.program, path=path)
    if found is None:
        raise missing(adapter, settings)
    program = _with_interpreter(adapter.locate(_resolved(found)), path)
    if adapter.versions is None:
        return Installed(program, "")
    version = await _version(adapter, program, _identity(program.argv[-1]), path)
    least, below = adapter.versions
    if not _numbers(least) <= _numbers(version) < _numbers(below):
        raise ToolUnsupported(
            f"{found} is {adapter.name} {version}; supported are {least} and newer, below {below}",
            hint=f"install a supported version: {adapter.install}",
        )
    return Installed(program, version)


def search_path(settings: CliSettings) -> str:
    """Where programs are looked for, also by the CLI itself."""
    return settings.path or os.environ.get("PATH") or os.defpath


_known: dict[tuple[str, int, int], str] = {}


async def _version(adapter: Adapter, program: Program, file: tuple[str, int, int], path: str) -> str:
    if file not in _known:
        with tempfile.TemporaryDirectory(prefix="perdure-probe-") as home:
            printed = await _printed(adapter, program, home, path)
        match = _VERSION.search(printed)
        if match is None:
            raise ToolUnsupported(f"{adapter.program} --version says no version: {printed[:200]!r}")
        _known[file] = match[0]
    return _known[file]


async def _printed(adapter: Adapter, program: Program, home: str, path: str) -> str:
    env = {
        "PATH": path,
        "HOME": home,
        "TMPDIR": home,
        "NO_COLOR": "1",
    }
    if adapter.own_home:
        env[adapter.own_home] = home
    try:
        process = await asyncio.create_subprocess_exec(
            *program.argv,
            "--version",
            env=env,
            cwd=home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise ToolMissing(
            f"{program.argv[0]} does not start: {error.strerror}", hint=f"install it: {adapter.install}"
        ) from None
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            printed, _ = await process.communicate()
    except TimeoutError:
        raise ToolUnsupported(f"{adapter.program} --version did not end within {PROBE_SECONDS:.0f} seconds") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return printed.decode(errors="replace")


def _resolved(path: str) -> Path:
    return Path(path).resolve()


def _identity(path: str) -> tuple[str, int, int]:
    facts = Path(path).stat()
    return path, facts.st_mtime_ns, facts.st_size


def _numbers(version: str) -> tuple[int, ...]:
    match = _VERSION.search(version)
    return tuple(map(int, match.groups())) if match else (0, 0, 0)


def _with_interpreter(program: Program, path: str) -> Program:
    """A script comes after its interpreter (`#!/usr/bin/env node`), which is looked for once, here."""
    script = Path(program.argv[0])
    try:
        with script.open("rb") as file:
            start = file.read(256)
    except OSError as error:
        raise ToolMissing(f"{script} cannot be read: {error.strerror}") from None
    if not start.startswith(b"#!"):
        return program
    words = start[2:].split(b"\n")[0].decode(errors="replace").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if not words:
        return program
    interpreter = shutil.which(words[0], path=path)
    if interpreter is None:
        raise ToolMissing(f"{script} needs {words[0]}, which is in no folder of PATH", hint=f"install {words[0]}")
    folders = (*_folders_of(Path(interpreter)), *_folders_of(Path(interpreter).resolve()))
    return Program((interpreter, *words[1:], *program.argv), (*program.folders, *folders))


@functools.cache
def _folders_of(interpreter: Path) -> tuple[Path, ...]:
    """What an interpreter reads: the folder above its bin (of a virtual environment, say), if it is no part of the system."""
    above = interpreter.parent.parent
    return () if above in (Path("/"), Path("/usr"), Path("/usr/local")) else (above,)
