"""After each workload plain SQL checks that no job is lost and no log has a gap."""

from bench.targets import Target


class Incorrect(AssertionError):
    """The database does not hold what it must."""


class LeftOut(Exception):
    """A workload cannot be measured on this machine; the message says why."""


async def check(target: Target, url: str, kind: str, *, status: str, jobs: int, events: int) -> None:
    """Every job of the kind once, all in `status`, each with that many events, numbered from 1 without gaps; where they are
    completed, one run each and nothing left in the queue or under a lease."""
    p = target.prefix
    of_kind = f"join {p}jobs j on j.id = x.job_id where j.kind = '{kind}'"
    stored, in_status, wrong, logged, runs, queued, claimed = await target.sql(
        url,
        f"""select
(select count(*) from {p}jobs where kind = '{kind}'),
(select count(*) from {p}jobs where kind = '{kind}' and status = '{status}'),
(select count(*) from (select x.job_id from {p}job_events x {of_kind}
  group by x.job_id having count(*) <> {events} or min(x.version) <> 1 or max(x.version) <> {events}) wrong),
(select count(*) from {p}job_events x {of_kind}),
(select count(*) from {p}job_runs x {of_kind}),
(select count(*) from {p}job_queue x {of_kind}),
(select count(*) from {p}job_claims x {of_kind})""",
    )
    done = status == "COMPLETED"
    expected = (jobs, jobs, 0, jobs * events, jobs if done else 0, 0 if done else jobs, 0)
    found = (stored, in_status, wrong, logged, runs, queued, claimed)
    if found != expected:
        names = ("jobs", status, "jobs with wrong logs", "events", "runs", "queued", "claimed")
        differ = [f"{n}: {f}, expected {e}" for n, f, e in zip(names, found, expected, strict=True) if f != e]
        raise Incorrect(f"{target.name}, {kind}: {'; '.join(differ)}")
