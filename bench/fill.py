"""Fill a database with many finished, delayed and parked jobs, by the transitions that the triggers allow."""

from bench.targets import Target

CHUNK = 20_000
TERMINAL, DELAYED, PARKED = 1_000_000, 100_000, 100_000
AGENTS = 10_000

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


_AGENT = """insert into {p}agent_instances (id, kind, created_at, updated_at)
  select 'agent-' || n, '{kind}', {now}, {now} from {numbers}"""
_MESSAGE = """insert into {p}agent_messages (id, to_agent_id, payload, created_at, due_at)
  select {id}, 'agent-' || (1 + n % {agents}), '{{"task":"demo"}}', {now}, {later} from {numbers}"""


async def fill(target: Target, url: str, scale: float) -> None:
    """`scale` times a million terminal, 100,000 delayed (at priority 9, in front of everything) and 100,000 parked jobs."""
    await _fill(
        target,
        url,
        scale,
        ("finished", TERMINAL, 5, "now", f"{_BORN}; {_STARTED}; {_COMPLETED}"),
        ("delayed", DELAYED, 9, "later", _BORN),
        _PARKED_JOBS,
    )
    if target.name == "postgres":
        for table in ("jobs", "job_events", "job_queue", "job_waits"):  # autovacuum would do this later
            await target.sql(url, f"vacuum (analyze) perdure.{table}")


async def fill_parked(target: Target, url: str, scale: float) -> None:
    """`scale` times 100,000 parked jobs."""
    await _fill(target, url, scale, _PARKED_JOBS)


async def fill_agents(target: Target, url: str, scale: float) -> None:
    """`scale` times 10,000 agents, named agent-1 and so on, with ten messages each that are due tomorrow."""
    agents = max(1, round(AGENTS * scale))
    await _fill(
        target,
        url,
        scale,
        ("agent", AGENTS, 0, "now", _AGENT),
        ("message", DELAYED, 0, "later", _MESSAGE.replace("{agents}", str(agents))),
    )


_PARKED_JOBS = ("parked", PARKED, 9, "now", f"{_BORN}; {_STARTED}; {_PARKED}")


async def _fill(target: Target, url: str, scale: float, *kinds: tuple[str, int, int, str, str]) -> None:
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
