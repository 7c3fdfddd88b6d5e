"""Becomes PostgreSQL: the step between the test process and the server, `postgres_child.py WAY PARENT COMMAND...`.

PostgreSQL refuses to run as root, and by itself it outlives a killed parent. This step takes care of both and then
*is* the server (exec), so that the server stays a direct child. Standard library only: it runs with `-I -S`.
"""

import ctypes
import os
import pwd
import signal
import sys
from pathlib import Path

CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1
NOBODY_INSIDE = 65534


def enter_user_namespace() -> None:
    """Root outside, the user `nobody` inside: PostgreSQL starts, and every file still belongs to root."""
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "no user namespace")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{NOBODY_INSIDE} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{NOBODY_INSIDE} {gid} 1")


def become_user_nobody() -> None:
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)


def die_with(parent: int) -> None:
    """A killed parent must take the server along. Linux only; it has to come after every change of user."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        sys.exit("the parent died first")


def main(way: str, parent: str, *command: str) -> None:
    if way == "namespace":
        enter_user_namespace()
    elif way == "nobody":
        become_user_nobody()
    die_with(int(parent))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
