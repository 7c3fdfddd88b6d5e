"""A PgBouncer in transaction mode before the PostgreSQL server of the tests.

Looked for in this order: `pgbouncer` on the PATH and in the directories for daemons; on machines with apt, its package, unpacked
into a cache of the checkout (nothing is installed, no root is needed). Where there is none its tests are skipped, and the summary
of the run says so.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit, urlunsplit

from tests.postgres_server import PATIENCE, become, free_port

DAEMONS = ("/usr/sbin", "/usr/local/sbin", "/sbin", "/opt/homebrew/bin", "/opt/local/bin")
TRY_AGAIN_AFTER = 600  # seconds; without a network it takes long to find out
POOL_SIZE = 10  # connections to the server, for each database


class PgBouncerUnavailableError(RuntimeError):
    """No PgBouncer could be found or started."""


class PgBouncer:
    """A pooler before the server of this URL, for all its databases. pool_mode: of PgBouncer; settings: more of its settings."""

    def __init__(self, server_url: str, cache: Path, *, pool_mode: str = "transaction", **settings: str) -> None:
        self._server = urlsplit(server_url)
        self._program = find_pgbouncer(cache)
        self._way = _usable_way(self._program)
        self._settings = {"pool_mode": pool_mode, **settings}
        self._port = free_port()

    def __enter__(self) -> Self:
        self._home = Path(tempfile.mkdtemp(prefix="perdure-pgbouncer-"))
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if (process := getattr(self, "_process", None)) is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._home, ignore_errors=True)

    def url(self, server_url: str) -> str:
        """The URL of the same database through this pooler."""
        parts = urlsplit(server_url)
        login, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{self._port}"))

    def _start(self) -> None:
        user, password = unquote(self._server.username or ""), unquote(self._server.password or "")
        users = self._home / "users"
        users.write_text(f'"{user}" "{password}"\n')
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self._port),
            "unix_socket_dir": "",
            "auth_type": "plain",
            "auth_file": str(users),
            "max_client_conn": "500",
            "server_login_retry": "1",  # seconds, after a session that a test ended while it began
            "default_pool_size": str(POOL_SIZE),
            **self._settings,
        }
        server = f"host={self._server.hostname} port={self._server.port or 5432}"
        lines = [f"[databases]\n* = {server}\n[pgbouncer]", *(f"{name} = {value}" for name, value in settings.items())]
        config = self._home / "pgbouncer.ini"
        config.write_text("\n".join(lines) + "\n")
        self._home.chmod(0o755)
        log = self._home / "log"
        command = become(self._way, self._program, str(config))
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=_environment(self._program)
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise PgBouncerUnavailableError(f"pgbouncer did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
            return True
        return False


def _usable_way(program: Path) -> str:
    """As whom it runs here: PgBouncer refuses to be root."""
    said = b""
    for way in ("namespace", "nobody") if os.geteuid() == 0 else ("same-user",):
        trial = become(way, program, "--version")
        done = subprocess.run(trial, capture_output=True, check=False, env=_environment(program))
        if done.returncode == 0:
            return way
        said = done.stderr
    raise PgBouncerUnavailableError(f"{program} does not run here: {said.decode()[-500:]}")


def _environment(program: Path) -> dict[str, str]:
    """The libraries that were unpacked with it are found."""
    root = program.parent.parent.parent
    found = {str(library.parent) for library in root.rglob("*.so.*")} if root.name == "unpacked" else set()
    return {**os.environ, **({"LD_LIBRARY_PATH": ":".join(sorted(found))} if found else {})}


def find_pgbouncer(cache: Path) -> Path:
    """The program, of this machine or of its package."""
    if found := shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", ""), *DAEMONS))):
        return Path(found)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise PgBouncerUnavailableError("there is no pgbouncer on this machine, and no apt to get its package")
    with (cache / "lock").open("w") as lock:  # several processes test at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        program, failed = cache / "unpacked" / "usr" / "sbin" / "pgbouncer", cache / "failed"
        if not program.exists():
            if failed.exists() and time.time() - failed.stat().st_mtime < TRY_AGAIN_AFTER:
                raise PgBouncerUnavailableError("the package pgbouncer could not be had a moment ago")
            failed.touch()
            _unpack_package(cache)
    if not program.exists():
        raise PgBouncerUnavailableError("the package pgbouncer has no /usr/sbin/pgbouncer")
    return program


def _unpack_package(cache: Path) -> None:
    (cache / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (cache / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    own = ["-o", f"Dir::State::Lists={cache}/lists", "-o", f"Dir::Cache={cache}", "-o", "APT::Sandbox::User=root"]
    options: list[str] = []
    if _run(cache, "apt-cache", "show", "pgbouncer") is None:  # images are often without lists of packages
        options = own
        _run(cache, "apt-get", *options, "update")
    listed = _run(cache, "apt-cache", *options, "depends", "--important", "pgbouncer") or ""
    needed = [name for _, _, name in (line.strip().partition("Depends: ") for line in listed.splitlines())]
    missing = [
        name
        for name in needed
        if name.startswith("lib") and _run(cache, "dpkg-query", "-W", "-f", "${Version}", name) is None
    ]
    if _run(cache, "apt-get", *options, "download", "pgbouncer", *missing) is None:
        raise PgBouncerUnavailableError("apt-get could not download the package pgbouncer")
    for package in cache.glob("*.deb"):
        _run(cache, "dpkg-deb", "-x", str(package), str(cache / "unpacked"))


def _run(place: Path, *command: str) -> str | None:
    """What a command prints; None if it fails."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode == 0:
            return done.stdout
    return None
