"""Sandbox levels: what this machine can do, found out by trying, and how a run is confined.

L0: own session, environment, HOME and limits. L1: Landlock; files that the run does not need cannot be read or written, TCP
connects to few ports, no signals to other processes. L2: bubblewrap; the same files are all there is, and other processes are
not visible.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from perdure.model.errors import SandboxTooWeak
from perdure.model.tooling import Sandbox
from perdure.tools.launcher import landlock_abi
from perdure.tools.process import Order, run
from perdure.tools.settings import Limits

LEVELS = ("L0", "L1", "L2")
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix", "/run/systemd/resolve")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm")
PROBE_SECONDS = 15.0

_SCRIPT = """
import os, socket, sys
tried = []
try:
    open(sys.argv[1], "w").close()
except OSError:
    tried.append("write")
try:
    open(sys.argv[2]).close()
except OSError:
    tried.append("read")
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[3])), 2).close()
except PermissionError:
    tried.append("connect")
except OSError:
    pass
print(" ".join(tried))
"""


class Machine(NamedTuple):
    """What works here. landlock and bwrap: what was refused to a program under it, of `read`, `write` and `connect`; empty where
    it does not work. bwrap_path: the program, where there is one."""

    landlock: frozenset[str]
    bwrap: frozenset[str]
    bwrap_path: str | None
    kernel: str
    landlock_abi: int


class Confinement(NamedTuple):
    """How a run is confined: words before its command, Landlock rules for the launcher, and what is recorded of it."""

    prefix: tuple[str, ...]
    rules: Mapping[str, Any] | None
    sandbox: Sandbox


class Needs(NamedTuple):
    """What a run needs: folders and files to read, folders to write, TCP ports, and whether it works under Landlock."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    ports: tuple[int, ...] | None
    cwd: str
    under_landlock: bool = True


_machines: dict[str | None, Machine] = {}


async def machine(bwrap_path: str | None = None) -> Machine:
    """What this machine can do, tried once per process. `bwrap_path`: used where PATH has no bubblewrap."""
    path = shutil.which("bwrap") or bwrap_path
    if path not in _machines:
        _machines[path] = await _probe(path)
    return _machines[path]


def confinement(level: str, least: str, needs: Needs, here: Machine) -> Confinement:
    """The strongest level that was asked for and works. A tool that does not work under Landlock gets L2 instead of L1, where it
    works, else L0. Raises SandboxTooWeak if that is below `least`."""
    wanted = LEVELS.index(level)
    network = here.landlock_abi >= 4 and "connect" in here.landlock and needs.ports is not None
    missing: list[str] = []
    prefix: tuple[str, ...] = ()
    rules: dict[str, Any] | None = None
    effective = "L0"
    if wanted and here.bwrap and (level == "L2" or not needs.under_landlock):
        effective, prefix = "L2", _bwrap(needs, here)
        rules = {"ports": needs.ports} if network else None
    elif wanted and here.landlock and needs.under_landlock:
        effective, rules = "L1", {"read": needs.read, "write": needs.write, "ports": needs.ports if network else None}
    elif wanted and network:
        rules = {"ports": needs.ports}
    if wanted:
        if effective == "L0":
            missing.append("files")
        if rules is None or not network:
            missing.append("network")
        if level == "L2" and effective != "L2":
            missing.append("processes")
    sandbox = Sandbox(level, effective, tuple(missing), here.kernel, here.landlock_abi)
    if LEVELS.index(effective) < LEVELS.index(least):
        reason = "it does not work under Landlock, and " if not needs.under_landlock else ""
        raise SandboxTooWeak(
            f"this machine gives the run level {effective}; {least} is required at least",
            hint=f"{reason}level {least} needs {'bubblewrap' if least == 'L2' or reason else 'Landlock'}, "
            "which does not work here",
        )
    return Confinement(prefix, rules, sandbox)


def readable(folders: Iterable[Path]) -> tuple[str, ...]:
    """The folders of the system and these."""
    return tuple(dict.fromkeys([*(p for p in SYSTEM if os.path.exists(p)), "/proc", *map(str, folders)]))  # noqa: PTH110  texts


def devices() -> tuple[str, ...]:
    """Devices that a confined run may write to."""
    return tuple(f"/dev/{name}" for name in DEVICES)


def in_container() -> bool:
    """Whether this process runs in a container, as far as it leaves marks."""
    if any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))) or "KUBERNETES_SERVICE_HOST" in os.environ:
        return True
    try:
        return any(
            word in Path("/proc/1/cgroup").read_text() for word in ("docker", "kubepods", "containerd", "libpod", "lxc")
        )
    except OSError:
        return False


def _bwrap(needs: Needs, here: Machine) -> tuple[str, ...]:
    assert here.bwrap_path is not None
    words = [here.bwrap_path, "--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    words += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108  a file system of the run's own
    for path in needs.read:
        if path not in ("/proc", "/dev"):
            words += ["--ro-bind-try", path, path]
    for path in needs.write:
        if not path.startswith("/dev/"):
            words += ["--bind", path, path]
    return (*words, "--chdir", needs.cwd, "--")


async def _probe(bwrap: str | None) -> Machine:
    abi = landlock_abi()
    here = Machine(frozenset(), frozenset(), bwrap, platform.release(), abi)
    if not sys.platform.startswith("linux"):
        return here
    with (
        tempfile.TemporaryDirectory(prefix="perdure-probe-") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        allowed, forbidden, python = _folders(Path(folder))
        needs = Needs(readable([Path(sys.base_prefix), python.parent]), (str(allowed), *devices()), (), str(allowed))
        script = (
            str(python),
            "-I",
            "-S",
            "-c",
            _SCRIPT,
            str(forbidden / "new"),
            str(forbidden / "secret"),
            str(server.getsockname()[1]),
        )
        if abi:
            rules = {"read": needs.read, "write": needs.write, "ports": needs.ports if abi >= 4 else None}
            here = here._replace(landlock=await _refused(Order(script, {}, allowed, Limits(), confine=rules)))
        if bwrap is not None:
            here = here._replace(bwrap=await _refused(Order((*_bwrap(needs, here), *script), {}, allowed, Limits())))
    return here


def _folders(folder: Path) -> tuple[Path, Path, Path]:
    """A folder that the attempt may write to, one that it may not even read, and the interpreter."""
    allowed, forbidden = folder / "allowed", folder / "forbidden"
    allowed.mkdir()
    forbidden.mkdir()
    (forbidden / "secret").write_text("x")
    return allowed, forbidden, Path(sys.executable).resolve()


async def _refused(order: Order) -> frozenset[str]:
    """What a program started so was refused; nothing if it did not run, or if files are not protected."""
    printed = bytearray()

    async def keep(stream: str, data: bytes) -> None:
        if stream == "stdout":
            printed.extend(data[:1000])

    try:
        async with asyncio.timeout(PROBE_SECONDS):
            report = await run(order, b"", keep, lambda _: None)
    except (TimeoutError, OSError):
        return frozenset()
    refused = frozenset(printed.decode(errors="replace").split())
    return refused if report.exit_code == 0 and {"read", "write"} <= refused else frozenset()
