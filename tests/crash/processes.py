"""Real processes, from the side of the test: started, stopped, continued, killed; and the person who answers their jobs."""

import asyncio
import contextlib
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from perdure import App, Approval
from perdure.chaos.processes import TIMEOUT, ForkServer
from perdure.model.errors import Conflict
from tests.crash.child_config import ChildConfig

ROOT = Path(__file__).parents[2]


class ForkServers:
    """The processes whose children are killed: one for each state of the clocks, started when it is first wanted."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._by_skew: dict[float, ForkServer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def of(self, skew: float) -> ForkServer:
        """The one whose clocks are wrong by so many seconds."""
        if skew not in self._by_skew:
            server = ForkServer("tests.crash.child:run_child", skew=skew, paths=(str(ROOT),))
            self._by_skew[skew] = self._stack.enter_context(server)
        return self._by_skew[skew]


class Child:
    """One process, its configuration and its log."""

    def __init__(self, server: ForkServer, config: ChildConfig, log: Path) -> None:
        self.config = config
        self._log = log
        log.touch()  # it may be killed before it says anything
        self._process = server.start(log, config.text())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it lives; -9 after SIGKILL."""
        return self._process.exit_code

    @property
    def log(self) -> str:
        """What it said."""
        return self._log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still lives."""
        self._process.signal(number)

    def kill(self) -> None:
        """SIGKILL, also to one that is stopped; waits until it is gone."""
        self._process.kill()

    async def stop(self) -> None:
        """SIGSTOP: it does nothing any more, and knows nothing of it. It is stopped while it holds no lock of SQLite's file:
        no other process could write until it goes on."""
        async with write_lock(self.config.url):
            self._process.stop()
            await until(lambda: _state(self.pid) == "T", what=f"{self.pid} to stand still")

    def go_on(self) -> None:
        """SIGCONT."""
        self._process.resume()

    async def ended(self, patience: float = TIMEOUT) -> int:
        """Wait for its end and return the exit code."""
        await until(
            lambda: self.exit_code is not None, what=f"the end of {self.config.role} {self.pid}", patience=patience
        )
        assert self.exit_code is not None
        return self.exit_code


class Crew:
    """The processes of one test, over one database and with one directory; none outlives the test."""

    def __init__(self, servers: ForkServers, url: str, place: Path) -> None:
        self._servers = servers
        self.url = url
        self.place = place
        self.children: list[Child] = []
        place.mkdir(exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.kill()
        print(self.logs())  # pytest shows it where the test failed

    def start(self, *, skew: float = 0.0, **config: Any) -> Child:
        """Start a process; by default a worker. skew: seconds by which its clocks are wrong."""
        given = ChildConfig(**{"role": "worker", "url": self.url, "place": str(self.place), **config})
        child = Child(self._servers.of(skew), given, self.place / f"log-{len(self.children)}")
        self.children.append(child)
        return child

    async def ready(self, *children: Child) -> None:
        """Wait until these have opened the store."""
        wanted = {str(child.pid) for child in children}
        await until(lambda: wanted <= set(self.lines("ready")), what="the processes to be ready")

    def open(self, gate: str) -> None:
        """Let go on what waits at this gate."""
        (self.place / gate).touch()

    def lines(self, name: str) -> list[str]:
        """What the children have left in a file, line by line."""
        file = self.place / name
        return file.read_text().splitlines() if file.exists() else []

    def effects(self, job_id: UUID) -> list[tuple[int, str]]:
        """The effects of a job, in order: attempt and name."""
        found = (line.split(" ", 2) for line in self.lines("effects"))
        return [(int(attempt), name) for job, attempt, name in found if job == str(job_id)]

    def logs(self) -> str:
        """The logs of all children, for the message of a failed test."""
        said = [f"{name}: {self.lines(name)}" for name in ("refusals", "deaths")]
        for child in self.children:
            config = f"{child.config.role} {child.pid} {child.config.kill_at or ''}"
            said.append(f"--- {config} exit {child.exit_code}\n{child.log[-3000:]}")
        return "\n".join(said)

    async def dismiss(self, *children: Child) -> None:
        """End these gracefully: they must do so, and say that all is well."""
        for child in children:
            child.signal(signal.SIGTERM)
        for child in children:
            code = await child.ended()
            assert code == 0, f"exit code {code}\n{child.log}"


@asynccontextmanager
async def write_lock(url: str) -> AsyncIterator[None]:
    """Inside of it no other process is inside a write transaction of SQLite. Of PostgreSQL it holds nothing."""
    if not url.startswith("sqlite:"):
        yield
        return
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=TIMEOUT)) as conn:
        conn.execute("begin immediate")
        yield
        conn.rollback()


def _state(pid: int) -> str:
    """The state of a process as Linux writes it: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def until(
    condition: Callable[[], Any], *, what: str = "the condition", patience: float = TIMEOUT, every: float = 0.02
) -> None:
    """Poll until a condition is true."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience:g} s for {what}")
        await asyncio.sleep(every)


async def all_ended(app: App, ids: Collection[UUID] | None = None, *, patience: float = TIMEOUT) -> None:
    """Wait until every job (or these) is finished."""
    deadline = time.monotonic() + patience
    left: Any = None
    while True:
        if ids is None:
            counts = Counter(await app.jobs.count())
            left = {status: n for status, n in counts.items() if status not in _ENDS}
        else:
            left = [id for id in ids if not (await app.jobs.get(id)).status.terminal]
        if not left:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"not finished after {patience:g} s: {left}")
        await asyncio.sleep(0.1)


_ENDS = ("COMPLETED", "FAILED", "CANCELLED", "DEADLETTER")

Answer = Callable[[Approval], dict[str, Any] | None]
"""What is said to an approval or a question: None is no; anything else is yes, and the answer to a question."""


@asynccontextmanager
async def answering(app: App, place: Path, answer: Answer) -> AsyncIterator[None]:
    """Answers what jobs ask: approvals by their newest token, questions by `answer`."""

    async def answer_all() -> None:
        while True:
            for approval in (await app.approvals.list(limit=200)).items:
                if approval.job_status not in ("WAITING_FOR_APPROVAL", "PARKED"):
                    continue
                with contextlib.suppress(Conflict):  # decided or cancelled this moment
                    await _decide(app, place, approval, answer)
            await asyncio.sleep(0.05)

    clerk = asyncio.create_task(answer_all())
    try:
        yield
        if clerk.done():
            clerk.result()
    finally:
        clerk.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await clerk


async def _decide(app: App, place: Path, approval: Approval, answer: Answer) -> None:
    given = answer(approval)
    if approval.kind == "question":
        if given is None:
            await app.deny(approval.id, by="clerk")
        else:
            await app.approve(approval.id, by="clerk", edited=given)
        return
    token = (place / f"tokens-{approval.id}").read_text().split()[-1]
    if given is None:
        await app.deny(token=token, by="clerk")
    else:
        await app.approve(token=token, by="clerk")
