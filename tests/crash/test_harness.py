"""The harness itself: it leaves no process and no row behind, it says what is wrong, and it finds what is wrong."""

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from perdure import App
from perdure.chaos import harness, worker, worker_pool
from perdure.chaos.errors import ChaosFailed
from perdure.chaos.harness import Chaos, Plan
from perdure.chaos.invariants import JobData
from perdure.chaos.jobs import BATCHES, ECHO, LISTENER, RATE, RATED, TICK
from perdure.chaos.processes import TIMEOUT, ForkServer
from perdure.chaos.proof import prove
from perdure.chaos.rates import RateProof
from perdure.chaos.report import Report
from perdure.model.errors import ConfigError, RealJobs, StoreUnreachable
from tests.crash.processes import until

pytestmark = pytest.mark.crash

ENTRY = "tests.crash.test_harness:obey"
ROOT = str(Path(__file__).parents[2])


def obey(text: str, say: Callable[[str], None]) -> None:
    """What the children of these tests do."""
    say(f"obeyed {text}")
    if text == "fail":
        raise ValueError("this child fails")
    if text == "leave":
        sys.exit(3)
    if text == "stay":
        signal.pause()


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with ForkServer(ENTRY, paths=(ROOT,)) as server:
        yield server


def alive(pid: int) -> bool:
    """Whether a process is there and no corpse."""
    try:
        state = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout
    except ProcessLookupError:
        return False
    return bool(state.strip()) and not state.strip().startswith("Z")


# -- processes ------------------------------------------------------------------------------------------------------------


def test_children_say_things_and_end_as_they_like(server: ForkServer, tmp_path: Path) -> None:
    ends = {"fail": 1, "leave": 3, "": 0}
    children = {text: server.start(tmp_path / "log", text) for text in ends}
    for text, child in children.items():
        server.wait_for(lambda child=child: child.exit_code is not None, "the end")  # type: ignore[misc]
        assert (child.exit_code, child.said) == (ends[text], [f"obeyed {text}"])
    assert "ValueError: this child fails" in (tmp_path / "log").read_text()


def test_a_stopped_child_can_be_killed(server: ForkServer, tmp_path: Path) -> None:
    child = server.start(tmp_path / "log", "stay")
    server.wait_for(lambda: bool(child.said), "a word")
    child.stop()
    child.kill()
    assert child.exit_code == -signal.SIGKILL
    child.signal(signal.SIGTERM)  # not delivered: its pid may belong to another process by now


@pytest.mark.parametrize("stopped", [False, True])
def test_no_child_outlives_a_fork_server_that_is_killed(server: ForkServer, tmp_path: Path, stopped: bool) -> None:
    child = server.start(tmp_path / "log", "stay")
    server.wait_for(lambda: bool(child.said), "a word")
    if stopped:
        child.stop()
    os.kill(parent_of(child.pid), signal.SIGKILL)
    asyncio.run(until(lambda: not alive(child.pid), what="the child to die"))
    with pytest.raises(ChaosFailed, match="the fork server has ended: exit code -9"):
        server.wait_for(lambda: False, "anything")


def parent_of(pid: int) -> int:
    """The parent of a process."""
    return int(subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout)


def descendants(pid: int) -> set[int]:
    """All processes that a process has started, and those they have."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found, new = set[int](), {pid}
    while new:
        new = {child for child, parent in parents if parent in new} - found
        found |= new
    return found


@pytest.mark.parametrize(
    ("number", "code", "says"),
    [
        (signal.SIGINT, 130, "stopped; no worker runs any more"),
        (signal.SIGTERM, 143, "stopped; no worker runs any more"),
        (signal.SIGKILL, -9, ""),
    ],
)
async def test_no_process_outlives_the_harness(
    file_store_url: str, tmp_path: Path, number: signal.Signals, code: int, says: str
) -> None:
    command = [sys.executable, "-m", "perdure", "chaos", "--url", file_store_url, "--kills", "100000", "--seed", "1"]
    command += ["--directory", str(tmp_path / "places")]
    running = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with App(file_store_url, migrate=True) as app:
            store = await app.open()
            async with asyncio.timeout(TIMEOUT):
                while "chaos.ops" not in await store.schema.kinds():
                    await asyncio.sleep(0.05)
            await until(lambda: len(descendants(running.pid)) > 5, what="workers")
            family = descendants(running.pid)
            running.send_signal(number)
            said = (await asyncio.wait_for(running.communicate(), 60))[1].decode()
            assert running.returncode == code, said
            assert says in said
            await until(lambda: not any(map(alive, family)), what="all of them to die")
            if number != signal.SIGKILL:
                assert await store.schema.kinds() == [], "its jobs are deleted"
                assert list((tmp_path / "places").iterdir()) == [], "and so are its files"
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


# -- the database ---------------------------------------------------------------------------------------------------------


async def test_real_jobs_are_refused_and_left_alone(file_store_url: str) -> None:
    async with App(file_store_url, tenant="another", migrate=True) as app:
        job = await app.enqueue("research", {"topic": "coffee"}, elsewhere=True)
        before = await job.get()
        with pytest.raises(RealJobs, match="'research'"):
            await Chaos(Plan(file_store_url, 3, 1)).run()
        store = await app.open()
        assert await store.schema.kinds() == ["research"]
        assert await store.workers.list_workers(include_stopped=True) == []

        report = await Chaos(Plan(file_store_url, 3, 1, workers=2, allow_real_jobs=True)).run()
        assert report.faults == []
        assert await job.get() == before
        assert await store.schema.kinds() == ["research"], "its own jobs are deleted"
    async with App(file_store_url, tenant=report.tenant) as app:
        assert await app.workers.list(include_stopped=True) == []


async def test_a_restart_command_is_not_run_over_real_jobs(postgres_url: str) -> None:
    async def restart() -> None:
        raise AssertionError("it must not")

    async with App(postgres_url) as app:
        await app.enqueue("research", elsewhere=True)
    report = await Chaos(Plan(postgres_url, 4, 1, workers=2, allow_real_jobs=True, restart=restart)).run()
    assert report.notes == ["the server was not restarted: the database holds jobs or tables of others"]
    assert report.faults == []


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("memory:", ConfigError),
        ("sqlite:////nowhere/at/all.db", StoreUnreachable),
        ("postgresql://nobody@127.0.0.1:1/x", StoreUnreachable),
    ],
)
async def test_databases_that_will_not_do(url: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await Chaos(Plan(url, 1, 1)).run()


async def enqueued(app: App) -> int:
    """How many jobs were not started by a message or a schedule."""
    counts = await app.jobs.count(by="kind")
    return sum(number for kind, number in counts.items() if kind not in (ECHO, BATCHES, LISTENER, TICK))


async def test_jobs_are_kept_where_they_are_to_be(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chaos.db"
    report = await Chaos(Plan(url, 2, 1, workers=1, jobs=30, keep=True, directory=tmp_path)).run()
    assert report.faults == []
    assert report.place is not None
    async with App(url, tenant=report.tenant) as app:
        assert await app.jobs.count() == dict(report.jobs)
        assert await enqueued(app) - report.done["forks"] == report.enqueued >= 30
    assert {"effects", "worker-1.log"} <= {file.name for file in Path(report.place).iterdir()}


async def test_no_restart_goes_on_after_the_run(postgres_url: str, tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def restart() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    plan = Plan(postgres_url, kills=4, seed=1, workers=1, restart=restart, directory=tmp_path)
    run = asyncio.create_task(Chaos(plan).run())
    async with asyncio.timeout(60):
        await begun.wait()
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert ended.is_set()


async def test_a_restart_that_fails_ends_the_run(postgres_url: str, tmp_path: Path) -> None:
    async def restart() -> None:
        raise ChaosFailed("the restart command ended with exit code 7")

    with pytest.raises(ChaosFailed, match="exit code 7"):
        await Chaos(Plan(postgres_url, 8, 1, restart=restart, directory=tmp_path)).run()


# -- what it finds --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finished:
    """A run that went well and was kept."""

    path: Path
    chaos: Chaos

    async def proved(self, place: Path, statement: str | None = None, effect: str = "") -> list[str]:
        """The faults of a copy with one change made while the triggers were away."""
        copy = place / "copy.db"
        with (
            closing(sqlite3.connect(self.path)) as whole,
            closing(sqlite3.connect(copy, isolation_level=None)) as changed,
        ):
            whole.backup(changed)
            triggers = changed.execute("select name, sql from sqlite_master where type = 'trigger'").fetchall()
            for name, _ in triggers:
                changed.execute(f"drop trigger {name}")
            changed.execute("pragma ignore_check_constraints = on")
            assert statement is None or changed.execute(statement).rowcount > 0
            for _, trigger in triggers:  # else fsck would miss them
                changed.execute(trigger)
        assert self.chaos.report.place is not None
        effects = Path(self.chaos.report.place, "effects").read_text()
        (place / "effects").write_text(effects + effect)
        report = Report(1, self.chaos.report.tenant)
        async with App(f"sqlite:///{copy}", tenant=report.tenant) as app:
            await prove(app.client, self.chaos.requested, report, place)
        return report.faults

    def row(self, query: str) -> Any:
        """The first row of a query."""
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query).fetchone()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    place = tmp_path_factory.mktemp("finished")
    path = place / "chaos.db"
    chaos = Chaos(Plan(f"sqlite:///{path}", 2, 1, workers=1, jobs=60, keep=True, directory=place))
    assert asyncio.run(chaos.run()).faults == []
    return Finished(path, chaos)


ORDINARY = "agent_id is null and kind <> 'chaos.tick'"
"""Jobs that were enqueued, not started by a message or a schedule."""
STEP = "select job_id, version from job_events where type = 'node_finished' limit 1"
COPY = (
    "insert into job_events "
    "select job_id, version + 1000, created_at, type, from_status, to_status, attempt, null, ran, payload"
)
SABOTAGE = {
    "a lost job": (
        f"delete from jobs where id = (select min(id) from jobs where {ORDINARY})",
        "was acknowledged and does not exist",
    ),
    "a job stored twice": (
        (
            f"update jobs set goal = (select goal from jobs where {ORDINARY} order by id limit 1) "
            f"where id = (select max(id) from jobs where origin_id is null and {ORDINARY})"
        ),
        "was enqueued once, and stored 2 times",
    ),
    "an unknown job": ("update jobs set goal = 'job 777777'", "was never enqueued"),
    "a gap": (f"delete from job_events where (job_id, version) = ({STEP})", "versions are not dense"),
    "a step recorded twice": (
        f"{COPY} from job_events where type = 'node_finished' limit 1",
        "recorded more than once",
    ),
    "a write without a lease": (
        f"update job_events set attempt = attempt + 1 where (job_id, version) = ({STEP})",
        "was written outside its attempt",
    ),
    "another result": ("update jobs set result = '[1]' where status = 'COMPLETED'", "its result is"),
    "another end": (
        "update jobs set status = 'FAILED', error_kind = 'odd', error_message = 'odd', result = null where result is not null",
        "it ended FAILED (odd: odd), not COMPLETED",
    ),
    "a cancel that no client asked for": (
        "update jobs set status = 'CANCELLED', result = null where id = (select min(id) from jobs where status = 'COMPLETED')",
        "it is CANCELLED, and no client cancelled it",
    ),
    "a job that is stuck": (
        "update jobs set status = 'RETRY', finished_at = null, result = null, next_retry_at = 1 where status = 'COMPLETED'",
        "it is stuck: RETRY",
    ),
    "a tool that was called again": (
        f"{COPY} from job_events where type = 'tool_called' and job_id in (select id from jobs where payload not like '%retry%')",
        "was silently called again",
    ),
    "a caught failure that was called again": (
        COPY.replace(" type,", " 'tool_called',") + " from job_events where type = 'failure_caught'",
        "was called again after its failure was recorded",
    ),
    "an unknown fork": (
        f"update jobs set origin_id = (select max(id) from jobs) where id = (select min(id) from jobs where {ORDINARY})",
        "it is a fork that was not asked for",
    ),
    "a message that no job has got": (
        "update agent_messages set consumed_by_job_id = null, consumed_at = null where to_agent_id = 'chaos.echo'",
        "no job has got it",
    ),
    "a reply that was sent twice": (
        (
            "insert into agent_messages (id, from_agent_id, tenant_id, channel, payload, created_at, due_at, reply_to) "
            "select 'ffffffff' || substr(id, 9), from_agent_id, tenant_id, channel, payload, created_at, due_at, reply_to "
            "from agent_messages where reply_to is not null limit 1"
        ),
        "it has 2 replies",
    ),
    "a signal that is lost": ("delete from agent_signals", "was acknowledged and is stored 0 times"),
    "a message to a running job that is lost": (
        "update jobs set result = '{}' where kind = 'chaos.listener'",
        "its result has the messages [], and it got ['news 1",
    ),
    "jobs that were rerun twice": (
        f"update jobs set origin_kind = 'rerun', origin_id = (select max(id) from jobs) where {ORDINARY}",
        "was rerun ",
    ),
}  # fmt: skip


def test_more_starts_of_a_key_than_its_rate_are_found() -> None:
    report = Report(1, "chaos")
    for seconds, number in ((6.1, 0), (5.9, 1)):
        proof = RateProof()
        proof.add(started("never"))
        for n in range(RATE + 1):
            proof.add(started("k", datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds * n)))
        assert len(list(proof.faults(report))) == number
    assert report.found["starts in a minute"] == RATE + 1


def started(key: str, *at: datetime) -> JobData:
    """A job with a rate that started at these times."""
    moves = [SimpleNamespace(type="run_started", at=each) for each in at]
    return cast("JobData", SimpleNamespace(job=SimpleNamespace(kind=RATED, concurrency_key=key), moves=moves))


async def test_a_run_that_went_well_is_proved_again(finished: Finished, tmp_path: Path) -> None:
    assert await finished.proved(tmp_path) == []


@pytest.mark.parametrize("what", SABOTAGE)
async def test_what_is_wrong_in_the_tables_is_found(finished: Finished, what: str, tmp_path: Path) -> None:
    statement, message = SABOTAGE[what]
    faults = await finished.proved(tmp_path, statement)
    assert any(message in fault for fault in faults), faults
    assert all("\n" not in fault for fault in faults)


async def test_what_is_wrong_outside_is_found(finished: Finished, tmp_path: Path) -> None:
    job, key = finished.row(
        "select job_id, payload ->> '$.key' from job_events "
        "where type = 'node_finished' and attempt = 1 and payload ->> '$.key' not like '%[%' "
        f"and job_id in (select id from jobs where {ORDINARY}) order by job_id"
    )
    tool, call = finished.row(
        "select job_id, payload ->> '$.key' from job_events where type = 'tool_called' order by job_id"
    )
    for effect, message in (
        (f"{job} 99 {key}\n", f"'{key}' ran in attempt 99, and attempt 1 had recorded it"),
        (f"{tool} 98 {call}\n", f"'{call}' happened without a logged call in attempts [98]"),
        (f"{job} 1 mischief\n", "it did what is not in its input: ['mischief']"),
        (f"{UUID(int=7)} 1 op0\n", "jobs did something that do not exist"),
    ):
        faults = await finished.proved(tmp_path, effect=effect)
        assert any(message in fault for fault in faults), (message, faults)


async def test_a_fork_that_asks_again_is_found(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, kind, key = finished.row("select job_id, kind, key from approvals where status = 'APPROVED'")
    monkeypatch.setitem(finished.chaos.requested.forks, UUID(job), (kind, key))
    monkeypatch.setattr(finished.chaos.requested, "forked", {UUID(job)})
    faults = await finished.proved(tmp_path, f"update jobs set origin_id = id where id = '{job}'")
    assert any("it asks again what was answered" in fault for fault in faults), faults


async def test_evidence_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_content(*given: Any) -> None:
        given[2].faults.append("nothing is ever good enough")

    monkeypatch.setattr(harness, "prove", never_content)
    url = f"sqlite:///{tmp_path}/chaos.db"
    report = await Chaos(Plan(url, 2, 1, workers=1, directory=tmp_path)).run()
    assert report.place is not None
    assert (Path(report.place) / "worker-1.log").exists()
    async with App(url, tenant=report.tenant) as app:
        assert await enqueued(app) - report.done["forks"] == report.enqueued > 0


async def test_a_worker_that_ends_by_itself_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "ENTRY", "tests.crash.test_harness:flimsy")
    monkeypatch.setenv("FLIMSY", str(tmp_path / "broken"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")]))
    report = await Chaos(Plan(f"sqlite:///{tmp_path}/chaos.db", 3, 1, workers=1, directory=tmp_path)).run()
    assert re.fullmatch(r"a worker ended by itself with exit code 1: ValueError: flimsy .*", report.faults[0])


def flimsy(text: str, say: Callable[[str], None]) -> None:
    """A worker with a fault: the first one breaks when it is ready."""

    def broken(words: str) -> None:
        say(words)
        if not (already := Path(os.environ["FLIMSY"])).exists():
            already.touch()
            raise ValueError(f"flimsy {UUID(int=0)}")

    worker.run_worker(text, broken)
