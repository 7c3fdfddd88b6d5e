"""Raw SQLite yardstick: the rows that perdure writes, written by hand: plain tables, no triggers, no checks, no lease to
look at, one thread, `executemany`, and a commit that reaches the disk (WAL, synchronous=FULL).

    python -m bench.sqlite_yardstick [--rounds 3]

  commit_1       one job (its row, its event, its queue row) per commit                     jobs/s
  commit_32      32 jobs per commit                                                         jobs/s
  enqueue_bulk   500 jobs per commit                                                        jobs/s
  drain          claim 500 (queue row away, job row, claim row, event), then complete 500
                 (claim row away, job row, event): two commits per 500 jobs        jobs/s
  steps_1        head of the log + event, 1 job per commit                                  steps/s
  steps_32       the same over 32 jobs per commit                                           steps/s
  steps_128      the same over 128 jobs per commit                                          steps/s
"""

import argparse
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.yardstick import BATCH, JOBS, PAYLOAD, RESULT, ids

DDL = """
create table jobs (id text primary key, kind text, queue text, lane text, status text, prev_status text, version int,
  priority int, attempt int, run_at int, created_at int, updated_at int, started_at int, finished_at int, ran int, note text,
  payload_hash text, payload text, result text);
create table job_events (job_id text, version int, created_at int, type text, from_status text, to_status text,
  attempt int, event_id text, ran int, payload text, primary key (job_id, version)) without rowid;
create table job_queue (job_id text primary key, lane text, priority int, run_at int) without rowid;
create index job_queue_ready on job_queue (lane, priority, run_at, job_id);
create table job_claims (job_id text primary key, attempt int, version int, worker_id text, ttl int, claimed_at int,
  expires_at int, started int) without rowid;
"""
WORKER = "w-0123456789"
NOTE = '{"actor":"bench","via":"python"}'
HELD = '{"worker":"w-0123456789"}'
HASH = "0" * 64
STEP = f'{{"key":"step#100","digest":"-","ms":0,"tries":1,"result":{RESULT}}}'

ENQUEUE = (
    "insert into jobs values (?,'noop','default','default','PENDING','PENDING',1,5,0,?,?,?,null,null,null,?,?,?,null)"
)
EVENT = "insert into job_events values (?,?,?,?,?,?,?,?,?,?)"
QUEUE = "insert into job_queue values (?,'default',5,?)"
DUE = """select j.id, j.kind, j.payload, j.attempt, j.version, j.created_at from job_queue q join jobs j on j.id = q.job_id
where q.lane = 'default' and q.priority = 5 and q.run_at <= ? order by q.run_at, q.job_id limit ?"""
TAKE = "delete from job_queue where job_id = ?"
MOVE = """update jobs set status = 'RUNNING', prev_status = status, version = version + 1, attempt = attempt + 1,
started_at = ?, updated_at = ?, note = ? where id = ?"""
LEASE = "insert into job_claims values (?,1,2,?,30000000,?,?,0)"
RELEASE = "delete from job_claims where job_id = ?"
FINISH = """update jobs set status = 'COMPLETED', prev_status = status, version = version + 1, result = ?, finished_at = ?,
ran = 100, updated_at = ?, note = ? where id = ?"""
HEAD = "update job_claims set version = ?, expires_at = ?, started = 1 where job_id = ?"


def micros() -> int:
    return time.time_ns() // 1000


def enqueue(conn: sqlite3.Connection, jobs: list[str]) -> None:
    now = micros()
    conn.execute("begin immediate")
    conn.executemany(ENQUEUE, [(j, now, now, now, NOTE, HASH, PAYLOAD) for j in jobs])
    conn.executemany(EVENT, [(j, 1, now, "job_created", None, "PENDING", None, None, None, NOTE) for j in jobs])
    conn.executemany(QUEUE, [(j, now) for j in jobs])
    conn.execute("commit")


def claim(conn: sqlite3.Connection, n: int) -> list[str]:
    now = micros()
    conn.execute("begin immediate")
    jobs = [row[0] for row in conn.execute(DUE, (now, n)).fetchall()]
    conn.executemany(TAKE, [(j,) for j in jobs])
    conn.executemany(MOVE, [(now, now, HELD, j) for j in jobs])
    conn.executemany(LEASE, [(j, WORKER, now, now + 30_000_000) for j in jobs])
    conn.executemany(EVENT, [(j, 2, now, "run_started", "PENDING", "RUNNING", 1, None, None, HELD) for j in jobs])
    conn.execute("commit")
    return jobs


def complete(conn: sqlite3.Connection, jobs: list[str]) -> None:
    now = micros()
    conn.execute("begin immediate")
    conn.executemany(RELEASE, [(j,) for j in jobs])
    conn.executemany(FINISH, [(RESULT, now, now, HELD, j) for j in jobs])
    conn.executemany(EVENT, [(j, 3, now, "job_completed", "RUNNING", "COMPLETED", 1, None, 100, HELD) for j in jobs])
    conn.execute("commit")


def enqueueing(conn: sqlite3.Connection, n: int, batch: int) -> float:
    rows = [str(i) for i in ids(n)]
    t = time.perf_counter()
    for i in range(0, n, batch):
        enqueue(conn, rows[i : i + batch])
    return n / (time.perf_counter() - t)


def drain(conn: sqlite3.Connection, n: int) -> float:
    enqueueing(conn, n, BATCH)
    done, t = 0, time.perf_counter()
    while jobs := claim(conn, BATCH):
        complete(conn, jobs)
        done += len(jobs)
    found = done / (time.perf_counter() - t)
    assert done == n, done
    return found


def steps(conn: sqlite3.Connection, batch: int, commits: int) -> float:
    enqueueing(conn, batch, BATCH)
    jobs = claim(conn, batch)
    events = [[str(i) for i in ids(batch)] for _ in range(commits)]
    t = time.perf_counter()
    for n, tags in enumerate(events):
        now = micros()
        conn.execute("begin immediate")
        conn.executemany(
            EVENT,
            [(j, 3 + n, now, "node_finished", None, None, 1, e, None, STEP) for j, e in zip(jobs, tags, strict=True)],
        )
        conn.executemany(HEAD, [(3 + n, now + 30_000_000, j) for j in jobs])
        conn.execute("commit")
    return batch * commits / (time.perf_counter() - t)


MEASURES: dict[str, Callable[[sqlite3.Connection, int], float]] = {
    "commit_1": lambda conn, jobs: enqueueing(conn, 1500, 1),
    "commit_32": lambda conn, jobs: enqueueing(conn, 6400, 32),
    "enqueue_bulk": lambda conn, jobs: enqueueing(conn, jobs, BATCH),
    "drain": drain,
    "steps_1": lambda conn, jobs: steps(conn, 1, 1500),
    "steps_32": lambda conn, jobs: steps(conn, 32, 300),
    "steps_128": lambda conn, jobs: steps(conn, 128, 150),
}


def measure(directory: Path, name: str, *, jobs: int = JOBS) -> float:
    """One measure, once, in a fresh file: operations per second."""
    path = directory / "yardstick.db"
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        conn.execute("pragma journal_mode = wal")
        conn.execute("pragma synchronous = full")
        conn.execute("pragma wal_autocheckpoint = 4000")
        conn.executescript(DDL)
        return MEASURES[name](conn, jobs)
    finally:
        conn.close()


def main() -> None:
    ap = argparse.ArgumentParser(prog="python -m bench.sqlite_yardstick")
    ap.add_argument("--rounds", type=int, default=3)
    rounds = ap.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        for name in MEASURES:
            values = [measure(Path(directory), name) for _ in range(rounds)]
            print(
                f"{name:14s} {round(statistics.median(values)):>9,d}/s   (rounds: {', '.join(f'{v:,.0f}' for v in values)})"
            )


if __name__ == "__main__":
    main()
