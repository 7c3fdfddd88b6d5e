"""The checker itself: it finds every kind of damage, so that its silence after a crash means something."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from perdure import App, Status
from tests.crash.apps import Errand, Op, make_app
from tests.crash.invariants import check, fsck

ERRANDS = {
    "completed": [
        Op("step", "one"),
        Op("tool", "two"),
        Op("usage", "three"),
        Op("stumble", "four"),
        Op("step", "five"),
    ],
    "parked": [Op("step", "one"), Op("sleep", "night", 3600)],
    "asking": [Op("step", "one"), Op("approve", "ok")],
    "running": [Op("step", "one"), Op("pause", "here", gate="never")],
}
WANTED = {
    "completed": Status.COMPLETED,
    "parked": Status.PARKED,
    "asking": Status.WAITING_FOR_APPROVAL,
    "running": Status.RUNNING,
}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, UUID]]:
    """A database with a job in each of several states, in which all is well; its triggers are gone."""
    place = tmp_path_factory.mktemp("healthy")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)  # where the errands leave their effects
        ids = asyncio.run(_fill(f"sqlite:///{place}/perdure.db"))
    with _opened(place / "perdure.db") as connection:
        for (name,) in connection.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            connection.execute(f"drop trigger {name}")
    return place / "perdure.db", ids


async def _fill(url: str) -> dict[str, UUID]:
    async with make_app(url) as app, _working(app):
        jobs = {name: await app.enqueue("errand", Errand(ops)) for name, ops in ERRANDS.items()}
        for name, status in WANTED.items():
            async with asyncio.timeout(30):
                while await jobs[name].status() is not status:
                    await asyncio.sleep(0.01)
        late = await app.enqueue("count", 1, delay=3600)
        # a database as a killed worker leaves it: copied while the job runs
        with _opened(Path(url.removeprefix("sqlite:///"))) as source, closing(sqlite3.connect("copy.db")) as copy:
            source.backup(copy)
    Path("copy.db").replace(url.removeprefix("sqlite:///"))
    return {name: job.id for name, job in jobs.items()} | {"pending": late.id}


@asynccontextmanager
async def _working(app: App) -> AsyncIterator[None]:
    worker = await app.worker(linger=0.1)
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop(now=True)
        await task


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


async def test_a_healthy_database_passes(healthy: tuple[Path, dict[str, UUID]]) -> None:
    path, ids = healthy
    snapshot = await check(f"sqlite:///{path}", ids.values(), by_fsck=False)
    assert {finding.code for finding in await fsck(f"sqlite:///{path}")} == {"schema-lost"}, "but for its triggers"
    assert snapshot.statuses() == {"COMPLETED": 1, "PARKED": 1, "WAITING_FOR_APPROVAL": 1, "RUNNING": 1, "PENDING": 1}


@pytest.mark.parametrize(
    ("damage", "report"),
    [
        ("delete from job_events where job_id = {completed} and version = 3", "dense"),
        ("delete from job_events where job_id = {completed} and type = 'job_completed'", "the row says"),
        ("update jobs set status = 'FAILED' where id = {completed}", "the row says"),
        ("update job_events set from_status = 'PARKED' where job_id = {completed} and type = 'job_completed'", "goes from"),
        ("update job_events set type = 'job_failed' where job_id = {completed} and type = 'job_completed'", "is called"),
        ("update job_events set event_id = {pending} where job_id = {completed}", "written twice"),
        ("update job_events set payload = json_set(payload, '$.key', 'one') where type = 'node_finished'", "more than once"),
        ("update job_events set attempt = 2 where job_id = {completed} and type = 'node_finished'", "outside its attempt"),
        ("update jobs set version = version + 1 where id = {completed}", "version is"),
        ("update jobs set version = version + 1 where id = {running}", "version is"),
        ("update jobs set attempt = attempt + 1 where id = {parked}", "attempts"),
        ("update jobs set retry_count = 0 where id = {completed}", "retries"),
        ("update jobs set finished_at = null where id = {completed}", "finished_at"),
        ("update jobs set error_message = 'x' where id = {completed}", "error_message"),
        ("update job_queue set job_id = {running} where job_id = {parked}", "queue rows"),
        ("delete from job_queue where job_id = {pending}", "queue rows"),
        ("delete from job_queue where job_id = {parked}", "queue rows"),
        ("update job_queue set run_at = run_at + 5000000 where job_id = {parked}", "too late"),
        ("delete from job_claims", "claims in"),
        ("update job_claims set job_id = {parked}", "claims in"),
        ("update job_claims set attempt = attempt + 1", "the claim is of attempt"),
        ("update job_claims set version = version + 1", "the claim's version"),
        ("delete from job_incomplete_runs where job_id = {completed} and attempt = 1", "without a run row"),
        ("update job_events set ran = null where job_id = {completed} and type = 'job_completed'", "without a run row"),
        ("update job_incomplete_runs set job_id = {running} where job_id = {parked}", "run row"),
        ("update job_incomplete_runs set outcome = 'RETRY' where job_id = {parked}", "run row"),
        ("update job_incomplete_runs set attempt = 7 where job_id = {parked}", "run row"),
        ("delete from job_waits where job_id = {asking}", "open waits"),
        ("update job_waits set job_id = {completed} where job_id = {asking}", "open waits"),
        ("update approvals set status = 'APPROVED', decided_at = 1", "was decided"),
        ("delete from approvals", "approvals"),
        ("insert into job_failures values ({completed}, 'FAILED', 0)", "job_failures"),
        ("update job_state set tokens = tokens + 1", "tokens"),
        ("delete from jobs where id = {pending}", "acknowledged jobs are gone"),
    ],
)  # fmt: skip
async def test_damage_is_found(healthy: tuple[Path, dict[str, UUID]], tmp_path: Path, damage: str, report: str) -> None:
    path, ids = healthy
    with _opened(path) as whole, _opened(tmp_path / "damaged.db") as damaged:
        whole.backup(damaged)
        damaged.execute("pragma ignore_check_constraints = on")
        changed = damaged.execute(damage.format_map({name: f"'{id}'" for name, id in ids.items()})).rowcount
        assert changed > 0
    url = f"sqlite:///{tmp_path}/damaged.db"
    with pytest.raises(AssertionError, match=report):
        await check(url, ids.values(), by_fsck=False)
    assert any(finding.job_id in ids.values() for finding in await fsck(url)), "and fsck finds it as well"


async def test_rest_and_rows_without_a_job_are_found(healthy: tuple[Path, dict[str, UUID]], tmp_path: Path) -> None:
    path, ids = healthy
    url = f"sqlite:///{tmp_path}/damaged.db"
    with _opened(path) as whole, _opened(tmp_path / "damaged.db") as damaged:
        whole.backup(damaged)
        with pytest.raises(AssertionError, match="nothing to do any more, and it is RUNNING"):
            await check(url, at_rest=True)
        damaged.execute("insert into job_events (job_id, version, type) values (?, 1, 'x')", (str(uuid4()),))
        with pytest.raises(AssertionError, match="rows of jobs that do not exist"):
            await check(url, ids.values(), by_fsck=False)
    assert "job-missing" in {finding.code for finding in await fsck(url)}
