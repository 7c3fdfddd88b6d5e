"""Raw PostgreSQL yardstick: what this server and this driver can do with the least work that could possibly be called
"a durable job": no triggers, no audit, no lease, no fencing.

    python -m bench.yardstick postgresql://user@host/database [--rounds 3] [--json]

Works in a schema `bench_yardstick` of its own and drops it again. A product figure is only meaningful as a ratio to a
figure measured here in the same session on the same server; `python -m bench` interleaves the two.

  roundtrip      prepared SELECT 1, one connection, sequential                              statements/s
  commit_1       prepared 1-row INSERT, autocommit, one connection, sequential              commits/s
  commit_16      the same from 16 connections at once                                       commits/s
  log_rows       INSERT .. SELECT unnest(..) into a (uuid, int) log table, 500 rows/commit   rows/s
  enqueue_bulk   the jobs into the raw queue table, 500 rows/commit                         jobs/s
  drain          claim 500 (UPDATE .. SKIP LOCKED .. RETURNING) then complete 500 (UPDATE),
                 two commits per 500 jobs, one connection                                   jobs/s
  steps_1        1-row append (head-row CAS UPDATE + log INSERT in one statement), sequential steps/s
  steps_32       the same statement over 32 jobs per commit                                 steps/s
  steps_128      the same statement over 128 jobs per commit                                steps/s
"""

import argparse
import asyncio
import json
import os
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import asyncpg

SCHEMA = "bench_yardstick"
JOBS = 20_000
BATCH = 500
DROP = f"drop schema if exists {SCHEMA} cascade"
DDL = f"""
{DROP}; create schema {SCHEMA};
create table {SCHEMA}.log (job_id uuid not null, version int not null, created_at timestamptz not null default now(),
  type text not null, payload jsonb, primary key (job_id, version));
create table {SCHEMA}.job (id uuid primary key, status smallint not null default 0, version int not null default 1,
  run_at timestamptz not null default now(), payload jsonb, result jsonb) with (fillfactor = 50);
create index job_ready on {SCHEMA}.job (run_at, id) where status = 0;
create table {SCHEMA}.head (id uuid primary key, version int not null) with (fillfactor = 50);
"""
PAYLOAD = json.dumps({"task": "demo", "args": {"prompt": "y" * 150}})
RESULT = '{"ok": true, "value": 12345}'
INS1 = f"insert into {SCHEMA}.log(job_id, version, type, payload) values ($1, 1, 'x', $2::jsonb)"
INSN = f"insert into {SCHEMA}.log(job_id, version, type, payload) select u, 1, 'x', $2::jsonb from unnest($1::uuid[]) u"
ENQ = f"insert into {SCHEMA}.job(id, payload) select * from unnest($1::uuid[], $2::jsonb[])"
CLAIM = f"""with c as materialized (select id from {SCHEMA}.job where status = 0 and run_at <= now() order by run_at, id
 limit $1 for update skip locked)
 update {SCHEMA}.job j set status = 1 from c where j.id = c.id returning j.id, j.payload"""
DONE = (
    f"update {SCHEMA}.job j set status = 2, result = u.r from unnest($1::uuid[], $2::jsonb[]) u(i, r)"
    " where j.id = u.i and j.status = 1"
)
STEP = f"""with h as (update {SCHEMA}.head k set version = k.version + 1 from unnest($1::uuid[], $2::int[]) u(i, v)
 where k.id = u.i and k.version = u.v returning k.id, k.version)
 insert into {SCHEMA}.log(job_id, version, type, payload) select id, version, 'step', $3::jsonb from h returning job_id"""
SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}


def ids(n: int) -> list[uuid.UUID]:
    """n time-ordered uuids (version-7 layout)."""
    out, base = [], time.time_ns() // 1_000_000
    for i in range(n):
        b = bytearray(base.to_bytes(6, "big") + (0x7000 | (i >> 6 & 0xFFF)).to_bytes(2, "big") + os.urandom(8))
        b[8] = 0x80 | (i & 0x3F)
        out.append(uuid.UUID(bytes=bytes(b)))
    return out


async def connect(dsn: str) -> Any:
    return await asyncpg.connect(dsn, server_settings=SETTINGS)


async def prepare(conn: Any, query: str) -> Any:
    """A bare prepare leaves an implicit transaction open; the select closes it."""
    statement = await conn.prepare(query)
    await conn.execute("select 1")
    return statement


async def rate(n: int, work: Awaitable[Any]) -> float:
    t = time.perf_counter()
    await work
    return n / (time.perf_counter() - t)


async def repeat(call: Callable[[], Awaitable[Any]], n: int) -> None:
    for _ in range(n):
        await call()


async def roundtrip(conn: Any, dsn: str, jobs: int) -> float:
    st = await prepare(conn, "select 1")
    return await rate(3000, repeat(st.fetchval, 3000))


async def commit_1(conn: Any, dsn: str, jobs: int) -> float:
    st, it = await prepare(conn, INS1), iter(ids(1500))
    return await rate(1500, repeat(lambda: st.fetch(next(it), RESULT), 1500))


async def commit_16(conn: Any, dsn: str, jobs: int) -> float:
    conns = [await connect(dsn) for _ in range(16)]
    sts = [await prepare(c, INS1) for c in conns]
    it = iter(ids(16 * 400))

    async def one(st: Any) -> None:
        await st.fetch(next(it), RESULT)

    all_connections = asyncio.gather(*(repeat(partial(one, s), 400) for s in sts))
    found = await rate(16 * 400, all_connections)
    for c in conns:
        await c.close()
    return found


async def log_rows(conn: Any, dsn: str, jobs: int) -> float:
    st, rows = await prepare(conn, INSN), ids(jobs)
    chunks = iter([rows[i : i + BATCH] for i in range(0, jobs, BATCH)])
    return await rate(jobs, repeat(lambda: st.fetch(next(chunks), RESULT), -(-jobs // BATCH)))


async def enqueue_bulk(conn: Any, dsn: str, jobs: int) -> float:
    st, rows = await prepare(conn, ENQ), ids(jobs)
    chunks = iter([rows[i : i + BATCH] for i in range(0, jobs, BATCH)])

    async def one() -> None:
        some = next(chunks)
        await st.fetch(some, [PAYLOAD] * len(some))

    return await rate(jobs, repeat(one, -(-jobs // BATCH)))


async def drain(conn: Any, dsn: str, jobs: int) -> float:
    await enqueue_bulk(conn, dsn, jobs)
    claim, done = await prepare(conn, CLAIM), await prepare(conn, DONE)
    await conn.execute(f"analyze {SCHEMA}.job")

    async def everything() -> None:
        n = 0
        while got := await claim.fetch(BATCH):
            await done.fetch([x[0] for x in got], [RESULT] * len(got))
            n += len(got)
        assert n == jobs, n

    return await rate(jobs, everything())


async def steps(conn: Any, batch: int, commits: int) -> float:
    st, heads, versions = await prepare(conn, STEP), ids(batch), [1] * batch
    await conn.executemany(f"insert into {SCHEMA}.head values ($1, 1)", [(h,) for h in heads])
    await conn.execute(f"analyze {SCHEMA}.head")

    async def everything() -> None:
        for _ in range(commits):
            got = await st.fetch(heads, versions, RESULT)
            assert len(got) == batch
            for i in range(batch):
                versions[i] += 1

    return await rate(batch * commits, everything())


async def steps_1(conn: Any, dsn: str, jobs: int) -> float:
    return await steps(conn, 1, 1500)


async def steps_32(conn: Any, dsn: str, jobs: int) -> float:
    return await steps(conn, 32, 300)


async def steps_128(conn: Any, dsn: str, jobs: int) -> float:
    return await steps(conn, 128, 150)


MEASURES: dict[str, Callable[[Any, str, int], Awaitable[float]]] = {
    f.__name__: f for f in (roundtrip, commit_1, commit_16, log_rows, enqueue_bulk, drain, steps_1, steps_32, steps_128)
}


async def measure(dsn: str, name: str, *, jobs: int = JOBS) -> float:
    """One measure, once, in fresh tables: operations per second."""
    conn = await connect(dsn)
    try:
        await conn.execute("set client_min_messages = warning")
        await conn.execute(DDL)
        return await MEASURES[name](conn, dsn, jobs)
    finally:
        await conn.execute(DROP)
        await conn.close()


async def main() -> None:
    ap = argparse.ArgumentParser(prog="python -m bench.yardstick")
    ap.add_argument("dsn")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--json", action="store_true")
    a = ap.parse_args()
    found: dict[str, list[float]] = {name: [] for name in MEASURES}
    for _ in range(a.rounds):
        for name, values in found.items():
            values.append(await measure(a.dsn, name))
    medians = {name: round(statistics.median(values)) for name, values in found.items()}
    if a.json:
        print(json.dumps(medians))
        return
    for name, median in medians.items():
        print(f"{name:14s} {median:>9,d}/s   (rounds: {', '.join(f'{v:,.0f}' for v in found[name])})")


if __name__ == "__main__":
    asyncio.run(main())
