"""The process between a worker and a coding CLI: it confines the CLI, and none of the CLI's processes outlives it.

Run as `python -I -S launcher.py FD`. FD is a socket to the worker: the first line from there is the order (`marshal`, in hex),
then the lines `soft` (ask the CLI to end) and `kill`; its end, which also comes when the worker dies, means `kill`. The last
line to there is the report (a dict as Python writes it). Nothing of perdure is used, and of the standard library only modules
that import little: json, signal, socket, contextlib and typing would double the time of its start.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import select
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, NoReturn
else:
    import _signal as signal

LINUX = sys.platform.startswith("linux")

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
RULE_PATH, RULE_PORT = 1, 2
READ_DIR_EXECUTE = 1 << 0 | 1 << 2 | 1 << 3
OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
CONNECT = 1 << 1
KILL_SECONDS = 10.0


class _Ignored:
    """`contextlib.suppress`."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """The version of Landlock that the kernel has; 0 where it has none or has it turned off."""
    if not LINUX or os.uname().machine not in ("x86_64", "aarch64"):
        return 0
    return max(0, int(_libc().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def confine(rules: dict[str, Any]) -> None:
    """Confine this process and its children. rules: read and write (folders and files; None = files are not restricted), ports
    (TCP, None = any). Raises OSError."""
    libc, abi = _libc(), landlock_abi()
    if not abi:
        raise OSError("this kernel has no Landlock")
    files = 0
    if rules.get("read") is not None:
        files = (1 << (13 if abi < 2 else 14 if abi < 3 else 15 if abi < 5 else 16)) - 1
    ports = rules.get("ports") if abi >= 4 else None
    wanted = (files, CONNECT if ports is not None else 0, 3 if abi >= 6 else 0)
    attributes = struct.pack("=QQQ", *wanted)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = _checked(libc.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    for access, paths in ((READ_DIR_EXECUTE & files, rules.get("read")), (files, rules.get("write"))):
        for path in paths or () if files else ():
            _allow(libc, ruleset, path, access, files)
    for port in ports or ():
        _checked(libc.syscall(ADD_RULE, ruleset, RULE_PORT, struct.pack("=QQ", CONNECT, port), 0))
    _checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(libc.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow(libc: Any, ruleset: int, path: str, access: int, handled: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # what is not there needs no rule
        return
    try:
        if not os.path.isdir(f"/proc/self/fd/{fd}"):  # noqa: PTH112  pathlib would take a third of the start
            access &= OF_FILES & handled
        _checked(libc.syscall(ADD_RULE, ruleset, RULE_PATH, struct.pack("=Qi", access, fd), 0))
    finally:
        os.close(fd)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _limit(limits: dict[str, int | None]) -> None:
    kinds = {
        "cpu_seconds": resource.RLIMIT_CPU,
        "open_files": resource.RLIMIT_NOFILE,
        "file_bytes": resource.RLIMIT_FSIZE,
        "processes": resource.RLIMIT_NPROC,
        "address_bytes": resource.RLIMIT_AS,
    }
    for name, kind in kinds.items():
        wanted = limits.get(name)
        if wanted is None:
            continue
        hard = resource.getrlimit(kind)[1]
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with _Ignored(ValueError, OSError):  # macOS refuses some
            resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _become(order: dict[str, Any], errors: int) -> NoReturn:
    """In the child: turn into the CLI. What fails is written to `errors`."""
    try:
        os.setsid()
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if LINUX:
            parent = os.getppid()
            _libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(127)
        os.chdir(order["cwd"])
        for group in order["groups"]:
            _write(f"{group['path']}/cgroup.procs", "0")
        _limit(order["limits"])
        if order["nice"]:
            os.nice(order["nice"])
        if order.get("confine") is not None:
            confine(order["confine"])
        os.execve(order["argv"][0], order["argv"], order["env"])  # noqa: S606  the CLI takes the place of this process
    except OSError as error:
        with _Ignored(OSError):
            os.write(errors, str(error).encode()[:500])
    except BaseException as error:  # noqa: BLE001  a child must not return into the launcher's code
        with _Ignored(OSError):
            os.write(errors, repr(error).encode()[:500])
    finally:
        os._exit(127)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _make_groups(groups: list[dict[str, Any]]) -> None:
    """Make cgroups with their limits. Raises OSError; then none of them is left."""
    try:
        for group in groups:
            with _Ignored(FileExistsError):
                os.mkdir(group["path"], 0o755)  # noqa: PTH102  pathlib would take a third of the start
            for name, limit in group["limits"].items():
                _write(f"{group['path']}/{name}", limit)
    except OSError:
        remove_groups(groups)
        raise


def remove_groups(groups: list[dict[str, Any]]) -> int:
    """Remove the cgroups; how many processes were killed because the memory limit was reached."""
    kills, until = 0, time.monotonic() + 1.0
    for group in groups:
        for name in ("memory.events", "memory.oom_control"):
            with _Ignored(OSError), open(f"{group['path']}/{name}", encoding="ascii") as file:  # noqa: PTH123
                kills += sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
        while True:
            try:
                os.rmdir(group["path"])  # noqa: PTH106  as above
            except FileNotFoundError:
                break
            except OSError:  # the kernel has not yet forgotten the processes that were in it
                if time.monotonic() > until:
                    break
                time.sleep(0.002)
            else:
                break
    return kills


def _children() -> dict[int, list[int]]:
    """Every process by its parent."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  pathlib would take a third of the start
        if name.isdigit():
            with _Ignored(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                fields = file.read().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    found.setdefault(int(fields[1]), []).append(int(name))
    return found


def _descendants(root: int) -> list[int]:
    tree, found, left = _children(), [], [root]
    while left:
        below = tree.get(left.pop(), [])
        found += below
        left += below
    return found


def _kill_all(child: int) -> int:
    """Kill every process below this one, until none is left; the number of those that could not be killed."""
    if not LINUX:
        with _Ignored(OSError):
            os.killpg(child, signal.SIGKILL)
        return 0
    until = time.monotonic() + KILL_SECONDS
    while _has_children():
        alive = _descendants(os.getpid())
        for pid in alive:
            with _Ignored(OSError):
                os.kill(pid, signal.SIGKILL)
        _reap(-1)
        if not alive or time.monotonic() > until:
            return len(alive)
        time.sleep(0.002)
    return 0


def _has_children() -> bool:
    """Whether any process is left below this one: what loses its parent becomes its child. Those that ended are taken note of."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def _reap(child: int) -> int | None:
    """Take note of processes that ended; the wait status of `child` if it is one of them."""
    status = None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            status = ended


def _ask(child: int, name: str) -> None:
    """The CLI and its process group are asked to end."""
    for ask in (os.killpg, os.kill):
        with _Ignored(OSError):
            ask(child, getattr(signal, "SIG" + name))
            return


class _Control:
    """The socket to the worker."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)  # the CLI must neither hold it open nor write to it
        self.fd = fd
        self._waiting = b""

    def lines(self) -> list[str] | None:
        """The lines that have come; None at the end of the socket."""
        try:
            received = os.read(self.fd, 1 << 16)
        except OSError:
            return None
        if not received:
            return None
        *lines, self._waiting = (self._waiting + received).split(b"\n")
        return [line.decode() for line in lines]

    def report(self, **facts: Any) -> None:
        """Tell the worker, if it still lives."""
        left = ascii(facts).encode() + b"\n"
        with _Ignored(OSError):
            while left:
                left = left[os.write(self.fd, left) :]


def main(fd: int) -> None:
    """Start the CLI, wait until it ends or must end, kill what is left of it, report."""
    control = _Control(fd)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    if LINUX:
        _libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _libc().prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    order = _order(control)
    if order is None:
        return
    try:
        _make_groups(order["groups"])
    except OSError as error:
        control.report(exit_code=127, error=f"its cgroup cannot be made: {error}")
        return
    broken, errors = os.pipe()
    child = os.fork()
    if child == 0:
        _become(order, errors)
    os.close(errors)
    for stream in (0, 1, 2):  # the worker waits for their end, and it may not wait for this process
        os.close(stream)
    started = time.monotonic()
    status = _wait(control, child, woken, order["soft_signal"])
    survivors = _kill_all(child)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    control.report(
        exit_code=os.waitstatus_to_exitcode(status) if status is not None else -signal.SIGKILL,
        error=os.read(broken, 500).decode(errors="replace"),
        seconds=time.monotonic() - started,
        cpu_seconds=used.ru_utime + used.ru_stime,
        max_rss_bytes=used.ru_maxrss * (1024 if LINUX else 1),
        survivors=survivors,
        memory_kills=remove_groups(order["groups"]),
    )


def _order(control: _Control) -> dict[str, Any] | None:
    while (lines := control.lines()) is not None:
        if lines:
            order: dict[str, Any] = marshal.loads(bytes.fromhex(lines[0]))  # noqa: S302  the worker wrote it
            return order
    return None


def _wait(control: _Control, child: int, woken: int, soft_signal: str) -> int | None:
    """The wait status of the CLI, once it ended; None if everything is to be killed."""
    while True:
        status = _reap(child)
        if status is not None:
            return status
        ready, _, _ = select.select([control.fd, woken], [], [])
        if woken in ready and set(os.read(woken, 4096)) & {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}:
            return None
        if control.fd in ready:
            lines = control.lines()
            if lines is None or "kill" in lines:
                return _reap(child)
            if "soft" in lines:
                _ask(child, soft_signal)


if __name__ == "__main__":
    main(int(sys.argv[1]))
    os._exit(0)  # nothing is left to be cleared away
