"""Fill a database with many finished, delayed and parked jobs, by the transitions that the triggers allow."""

from bench.targets import Target

CHUNK = 20_000
TERMINAL, DELAYED, PARKED = 1_000_000, 100_000, 100_000

_DIALECT = {
    "postgres": {
        "p": "perdure.",
        "numbers": "generate_series({first}, {last}) s(n)",
        "id": "('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid",
        "now": "perdure.db_now()",
        "later": "perdure.db_now() + interval '1 day'",
    },
    "sqlite": {
        "p": "",
        "numbers": "(with recursive s(n) as (select {first} union all select n + 1 from s where n < {last}) select n from s)",
        "id": "'00000000-0000-7000-8000-' || printf('%012x', n)",
        "now": "(select now from clock)",
        "later": "(select now + 86400000000 from clock)",
    },
}

_BORN = """insert into {p}jobs (id, kind, priority, run_at, payload)
  select {id}, '{kind}', {priority}, {run_at}, '{{"task":"demo"}}' from {numbers}"""
_STARTED = """delete from {p}job_queue where job_id in (select id from {p}jobs where kind = '{kind}' and status = 'PENDING');
update {p}jobs set status = 'RUNNING', prev_status = status, version = version + 1, attempt = attempt + 1,
  started_at = {now}, updated_at = {now} where kind = '{kind}' and status = 'PENDING'"""
_COMPLETED = """update {p}jobs set status = 'COMPLETED', prev_status = status, version = version + 1, result = '1',
  finished_at = {now}, updated_at = {now} where kind = '{kind}' and status = 'RUNNING'"""
_PARKED = """insert into {p}job_waits (job_id, key, kind, until)
  select id, 'later', 'timer', {later} from {p}jobs where kind = '{kind}' and status = 'RUNNING';
update {p}jobs set status = 'PARKED', prev_status = status, version = version + 1, updated_at = {now}
  where kind = '{kind}' and status = 'RUNNING'"""


async def fill(target: Target, url: str, scale: float) -> None:
    """`scale` times a million terminal, 100,000 delayed (at priority 9, in front of everything) and 100,000 parked jobs."""
    kinds = (
        ("finished", TERMINAL, 5, "now", f"{_BORN}; {_STARTED}; {_COMPLETED}"),
        ("delayed", DELAYED, 9, "later", _BORN),
        ("parked", PARKED, 9, "now", f"{_BORN}; {_STARTED}; {_PARKED}"),
    )
    first = 1
    for kind, full, priority, due, script in kinds:
        left = round(full * scale)
        while left > 0:
            some = min(left, CHUNK)
            values = dict(_DIALECT[target.name])
            values["numbers"] = values["numbers"].format(first=first, last=first + some - 1)
            # each chunk under a kind of its own, so that a statement finds its rows by the index on kinds
            await target.sql(
                url, script.format(**values, kind=f"{kind}-{first}", priority=priority, run_at=values[due])
            )
            first, left = first + some, left - some
    if target.name == "postgres":
        for table in ("jobs", "job_events", "job_queue", "job_waits"):  # autovacuum would do this later
            await target.sql(url, f"vacuum (analyze) perdure.{table}")
