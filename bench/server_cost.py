"""What the server does for a job, without a worker: python -m bench.server_cost [--apart]

Claims and ends of jobs through the store, 500 at a time, and the processor time of the server's processes for each. `--apart`
does it again on databases from which one thing is taken out (a trigger, the checks, the log of a table): what is saved is what it
costs. Of all batches of all rounds the cheapest tenth counts: what else runs on the machine makes a batch dearer, never cheaper.
PERDURE_BENCH_DATABASE_URL names a server of this machine; without it the benchmark starts one. Needs /proc.
"""

import argparse
import sys
from pathlib import Path

import asyncpg

from bench.checks import Incorrect, LeftOut
from bench.handlers import PAYLOAD, bench_app
from bench.machine import machine, warnings_only
from bench.meter import parent_of
from bench.targets import PostgresTarget
from perdure import Request
from perdure.event_loop import run
from perdure.model.jobs import Outcome
from perdure.model.states import Status
from perdure.store.open import open_store
from perdure.store.protocol import Store

BATCH = 500
WARM = 2
"""Batches before the clock starts: the first one plans the statements."""
DONE = Outcome(Status.COMPLETED, result='{"ok":true,"value":12345}', ran=0.0001)

APART = {
    "the events of transitions": "create rule gone as on insert to perdure.job_events do instead nothing",
    "the check for gaps in the log": "alter table perdure.job_events disable trigger job_events_dense",
    "jobs_moved, with the events": "alter table perdure.jobs disable trigger jobs_moved",
    "row triggers of jobs": """do $$ declare name text; begin
        for name in select tgname from pg_trigger
            where tgrelid = 'perdure.jobs'::regclass and tgtype & 1 = 1 and not tgisinternal loop
          execute format('alter table perdure.jobs disable trigger %I', name);
        end loop; end $$""",
    "CHECKs of jobs": """do $$ declare name text; begin
        for name in select conname from pg_constraint where conrelid = 'perdure.jobs'::regclass and contype = 'c' loop
          execute format('alter table perdure.jobs drop constraint %I', name);
        end loop; end $$""",
    "WAL of jobs": "alter table perdure.jobs set unlogged",
    "WAL of job_events": "alter table perdure.job_events set unlogged",
    "WAL of job_queue, job_claims": "alter table perdure.job_queue set unlogged; alter table perdure.job_claims set unlogged",
}
"""What is taken out, and how. To measure only: a database cannot do without any of it."""

STATEMENTS = {
    "job_claims: insert": """insert into perdure.job_claims (job_id, attempt, version, worker_id, expires_at)
        select id, 1, 2, 'bench', perdure.db_now() from unnest($1::uuid[]) id""",
    "job_claims: delete": "delete from perdure.job_claims where job_id = any ($1::uuid[])",
    "job_queue: insert (two indexes)": """insert into perdure.job_queue (job_id, lane, kind, priority, run_at)
        select id, 'bench', 'noop', 5, perdure.db_now() from unnest($1::uuid[]) id""",
    "job_queue: delete": "delete from perdure.job_queue where job_id = any ($1::uuid[])",
}
"""Single statements over the rows of a batch, in this order."""

Figures = dict[str, float]
Batches = dict[str, list[float]]


class Server:
    """The processor time of a server's processes."""

    def __init__(self, postmaster: int) -> None:
        self._children = Path(f"/proc/{postmaster}/task/{postmaster}/children")

    @classmethod
    async def at(cls, url: str) -> "Server":
        """The server of this database, which must run on this machine."""
        connection = await asyncpg.connect(url)
        try:
            postmaster = parent_of(connection.get_server_pid(), "postgres")
        finally:
            await connection.close()
        if postmaster is None:
            raise LeftOut("the processes of the server are not those of this machine: their time cannot be read")
        return cls(postmaster)

    def spent(self) -> float:
        """Microseconds used so far by the processes that are there now."""
        return sum(map(_nanoseconds, self._children.read_text().split())) / 1000


def _nanoseconds(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except OSError:  # it has ended
        return 0


async def life(target: PostgresTarget, jobs: int, taken_out: str | None = None) -> Batches:
    """Microseconds of the server for each job, of claims and of ends, and bytes of WAL: a value for each batch."""
    async with target.fresh() as url:
        if taken_out is not None:
            await target.sql(url, taken_out)
        bench = bench_app(url)
        async with bench.app:
            await bench.app.enqueue_many(Request(bench.noop, PAYLOAD) for _ in range(jobs))
        await target.settle(url)
        store = await open_store(url)
        try:
            log = await target.log_bytes(url) or 0
            figures = await _claims_and_ends(await Server.at(url), store, jobs // BATCH)
            figures["wal_bytes"] = [((await target.log_bytes(url) or 0) - log) / jobs]
        finally:
            await store.close()
    return figures


async def _claims_and_ends(server: Server, store: Store, batches: int) -> Batches:
    claims, ends = [], []
    for _ in range(batches):
        began = server.spent()
        claimed = await store.leases.claim(
            worker_id="bench-1-abcdef", queue="default", kinds={"noop": 3}, limit=BATCH, ttl=60.0
        )
        between = server.spent()
        results = await store.leases.finish_many([(job.lease, DONE) for job in claimed])
        claims.append((between - began) / BATCH)
        ends.append((server.spent() - between) / BATCH)
        if len(claimed) != BATCH or {*results} != {Status.COMPLETED}:
            raise Incorrect(f"claimed {len(claimed)} of {BATCH} jobs, which ended as {set(results)}")
    return {"claim": claims[WARM:], "end": ends[WARM:]}


async def statements(target: PostgresTarget, batches: int) -> Figures:
    """Microseconds of the server for each row of these statements."""
    async with target.fresh() as url:
        server = await Server.at(url)
        found: dict[str, list[float]] = {name: [] for name in STATEMENTS}
        connection = await asyncpg.connect(url, server_settings={"plan_cache_mode": "force_generic_plan"})
        try:
            prepared = {name: await connection.prepare(sql) for name, sql in STATEMENTS.items()}
            for _ in range(batches):
                rows = await connection.fetch(f"select perdure.uuid7() as id from generate_series(1, {BATCH})")
                for name, statement in prepared.items():
                    began = server.spent()
                    await statement.fetch([row["id"] for row in rows])
                    found[name].append((server.spent() - began) / BATCH)
        finally:
            await connection.close()
    return {name: _cheapest(values[WARM:]) for name, values in found.items()}


async def measure(target: PostgresTarget, jobs: int, rounds: int, *, apart: bool) -> dict[str, Figures]:
    """`life` as it is (`everything`), and what each part costs. A round measures each of them once."""
    pieces: dict[str, str | None] = {"everything": None, **(APART if apart else {})}
    found: dict[str, Batches] = {name: {} for name in pieces}
    for _ in range(rounds):
        for name, taken_out in pieces.items():
            for figure, values in (await life(target, jobs, taken_out)).items():
                found[name].setdefault(figure, []).extend(values)
    figures = {name: {figure: _cheapest(values) for figure, values in of.items()} for name, of in found.items()}
    whole = figures.pop("everything")
    saved = {name: {figure: whole[figure] - of[figure] for figure in whole} for name, of in figures.items()}
    return {"everything": whole, **saved}


def _cheapest(values: list[float]) -> float:
    """The value that a tenth of them do not exceed."""
    return sorted(values)[len(values) // 10]


async def report(jobs: int, rounds: int, *, apart: bool) -> None:
    """Print the table."""
    with PostgresTarget() as target:
        print(
            f"{machine()}\n{await target.about()}\nmicroseconds of the server for each job, {BATCH} at a time",
            flush=True,
        )
        figures = await measure(target, jobs, rounds, apart=apart)
        print(f"{'':<34}{'claim':>8}{'end':>8}{'both':>8}{'WAL bytes':>11}")
        for name, of in figures.items():
            print(
                f"{name:<34}{of['claim']:>8.1f}{of['end']:>8.1f}{of['claim'] + of['end']:>8.1f}{of['wal_bytes']:>11,.0f}"
            )
        for name, us in (await statements(target, 40) if apart else {}).items():
            print(f"{name:<34}{'':>16}{us:>8.1f}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.server_cost", description="The server's processor time for a job."
    )
    parser.add_argument("--jobs", type=int, default=10_000, help="of each measurement (10,000)")
    parser.add_argument("--rounds", type=int, default=5, help="(5)")
    parser.add_argument("--apart", action="store_true", help="also what each part costs")
    given = parser.parse_args()
    if given.jobs < BATCH * (WARM + 2):
        parser.error(f"--jobs: at least {BATCH * (WARM + 2)}")
    warnings_only()
    try:
        run(report(given.jobs, given.rounds, apart=given.apart))
    except LeftOut as reason:
        parser.error(str(reason))
    return 0


if __name__ == "__main__":
    sys.exit(main())
