"""`perdure chaos`: kill worker processes, and check in the database that no job was lost or ran wrongly."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.context import Cli, run_async
from perdure.cli.errors import Exit
from perdure.cli.format import one_line, span
from perdure.cli.options import command, group
from perdure.cli.usage_error import Usage
from perdure.model.errors import PerdureError

if TYPE_CHECKING:
    from rich.text import Text

    from perdure.chaos.faults import Restart
    from perdure.chaos.harness import Plan
    from perdure.chaos.report import Report

app = group("Kill worker processes, and check that no job is lost or runs wrongly.", "perdure chaos --kills 200")

LARGEST_SEED = 1_000_000
MOST_FAULTS = 200


@command(
    app,
    "chaos",
    example="""\
perdure chaos
perdure chaos --url sqlite:///chaos.db --kills 500 --seed 7
perdure chaos --url postgresql://localhost/scratch --kills 2000 --restart-command 'pg_ctlcluster 16 main restart'""",
)
def chaos(
    cli: Cli,
    kills: Annotated[int, typer.Option("--kills", metavar="N", help="Number of SIGKILLs; default 200", min=1)] = 200,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="S", help="Decides what happens; default: a random one, which is printed", min=0
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", help="Worker processes at a time; default 4", min=1, max=64)
    ] = 4,
    jobs: Annotated[
        int,
        typer.Option("--jobs", metavar="N", help="Run at least this many jobs, also after the last kill", min=0),
    ] = 0,
    restart_command: Annotated[
        str | None,
        typer.Option("--restart-command", metavar="COMMAND", help="Shell command that restarts the database server"),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the jobs in the database, and the logs")] = False,
    directory: Annotated[
        str | None,
        typer.Option("--directory", metavar="DIR", help="Where the logs are written; default: a temporary directory"),
    ] = None,
    allow_real_jobs: Annotated[
        bool,
        typer.Option(
            "--allow-real-jobs", help="Also use a database that has other jobs or tables; they are not touched"
        ),
    ] = False,
) -> int:
    """Kill and stop worker processes, cut their connections and set their clocks wrong while jobs run; then check every job.

    Without --url and a configured database it uses a temporary SQLite file. Exit code 1 if there are faults, with a line for
    each. Its jobs are in a tenant of their own and are deleted at the end, unless there are faults.
    """
    if cli.flags.tenant:
        raise Usage("chaos makes a tenant of its own", hint="leave --tenant out")
    from perdure.chaos.harness import Plan
    from perdure.config import load_settings

    settings = load_settings({"database_url": cli.flags.db})
    plan = Plan(
        url=None if settings.origins["database_url"] == "default" else settings["database_url"].strip(),
        kills=kills,
        seed=random.randrange(LARGEST_SEED) if seed is None else seed,
        workers=workers,
        jobs=jobs,
        keep=keep,
        allow_real_jobs=allow_real_jobs,
        restart=_restarter(restart_command),
        directory=None if directory is None else Path(directory),
    )
    return run_async(_run(cli, plan), fast=True)


async def _run(cli: Cli, plan: Plan) -> int:
    from perdure.chaos.harness import Chaos

    live = cli.out.for_people and not cli.out.quiet and sys.stderr.isatty()
    cli.out.note(f"seed {plan.seed}: {plan.kills} kills on {_where(plan)}; Ctrl-C stops")
    harness = Chaos(plan, on_report=(lambda report: _say(_line(report, plan))) if live else None)
    try:
        report = await harness.run()
    except (asyncio.CancelledError, PerdureError) as error:
        if live:
            _say("")
        if isinstance(error, asyncio.CancelledError):
            cli.out.note("stopped; no worker runs any more")
        if harness.report.place:
            cli.out.note(f"kept: {_left(harness.report)}")
        raise
    if live:
        _say("")
    cli.out.one(_facts(report, plan), lambda: page(report, plan), id=report.seed, plain=dict)
    return Exit.FAILURE if report.faults else Exit.OK


def _restarter(shell: str | None) -> Restart | None:
    if shell is None:
        return None
    from perdure.chaos.errors import ChaosFailed

    async def restart() -> None:
        pipe = asyncio.subprocess.PIPE
        running = await asyncio.create_subprocess_shell(
            shell, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=pipe
        )
        try:
            stderr = (await running.communicate())[1].decode(errors="replace")
        except asyncio.CancelledError:
            running.kill()
            raise
        if running.returncode:
            raise ChaosFailed(
                f"the restart command ended with exit code {running.returncode}: {one_line(stderr)[-300:] or 'no message'}",
                hint=f"it was: {shell}",
            )

    return restart


def _where(plan: Plan) -> str:
    from perdure.config import BY_NAME, shown

    return "a temporary SQLite file" if plan.url is None else shown(BY_NAME["database_url"], plan.url)


def _say(line: str) -> None:
    width = shutil.get_terminal_size().columns - 1  # a line that wraps could not be overwritten
    print(f"\r\x1b[2K{line[:width]}", end="", file=sys.stderr, flush=True)


def _left(report: Report) -> str:
    return f"jobs of tenant {report.tenant}; effects and logs in {report.place}"


def _line(report: Report, plan: Plan) -> str:
    """The progress."""
    if report.phase == "proof":
        return f"proof: {report.checked} of {report.enqueued} jobs checked, {_faults(report)}"
    done = report.done
    return (
        f"{report.phase}: {report.kills} of {plan.kills} kills, {done['stops']} stops, {done['terms']} terms, "
        f"{_drops(report)} drops, {done['restarts']} restarts; {report.enqueued} jobs, {report.open} open"
    )


def _faults(report: Report) -> str:
    return f"{len(report.faults)} fault{'s' * (len(report.faults) != 1)}"


def _drops(report: Report) -> int:
    return sum(report.done[name] for name in ("cuts", "answers lost", "sessions ended"))


def _facts(report: Report, plan: Plan) -> dict[str, Any]:
    return {
        "ok": not report.faults,
        "seed": report.seed,
        "database": _where(plan),
        "tenant": report.tenant,
        "seconds": round(report.took, 1),
        "kills_per_second": round(report.kill_rate, 1),
        **{name.replace(" ", "_"): report.done[name] for name in DONE},
        "jobs": dict(report.jobs),
        **{name.replace(" ", "_"): report.found[name] for name in FOUND},
        "notes": report.notes,
        "kept_in": report.place,
        "faults": report.faults,
    }


DONE = (
    "workers", "kills", "stops", "leases lost", "terms", "cuts", "answers lost", "sessions ended", "restarts", "cancels",
    "made due", "refused", "checks", "deploys", "ended by jobs", "worn out", "forks", "reruns", "deleted",
)  # fmt: skip
FOUND = (
    "attempts", "taken over", "steps", "tool calls", "caught failures", "waits for code", "approvals decided",
    "approvals expired", "questions", "events", "signals", "signals taken", "starts in a minute",
)  # fmt: skip


def page(report: Report, plan: Plan) -> Text:
    """The summary table, and every fault in a line."""
    from rich.text import Text

    done, found = report.done, report.found
    dropped = (
        f"{done['cuts']} connections cut, {done['answers lost']} answers lost, "
        f"{done['sessions ended']} sessions ended by the server"
    )
    statuses = ", ".join(f"{number} {status}" for status, number in report.jobs.most_common())
    rows = {
        "seed": f"{report.seed}",
        "time": f"{span(report.took)}, {report.kill_rate:.1f} kills a second",
        "workers": f"{plan.workers} at a time, {done['workers']} in all",
        "kills": f"{report.kills} by SIGKILL",
        "stops": f"{done['stops']} by SIGSTOP, most past their lease; {done['leases lost']} times a worker outlived its lease",
        "terms": f"{done['terms']} by SIGTERM",
        "drops": f"{_drops(report)}: {dropped}",
        "restarts": f"{done['restarts']} of the server",
        "by jobs": f"{done['ended by jobs']} workers ended by a job, {done['worn out']} by calls that hang",
        "deploys": f"{done['deploys']}; {found['waits for code']} times the code did not fit a job",
        "by people": f"{done['cancels']} jobs cancelled, {done['made due']} made due, {done['forks']} forked; "
        f"{done['refused']} calls failed",
        "queue": f"{done['pauses']} pauses, {done['edits']} jobs with another priority",
        "in bulk": f"{done['reruns']} jobs rerun, {done['deleted']} deleted",
        "jobs": f"{sum(report.jobs.values())}: {statuses}",
        "attempts": f"{found['attempts']}, {found['taken over']} of them cut off and taken over",
        "steps": f"{found['steps']} recorded, {found['tool calls']} tool calls, {found['caught failures']} failures caught",
        "approvals": f"{found['approvals decided']} decided, {found['approvals expired']} expired; "
        f"{found['questions']} asked about tools",
        "messages": f"{found['messages']} to agents, {found['replies']} replies; {found['firings']} firings of a schedule",
        "signals": f"{found['signals']} to an agent, {found['signals taken']} taken; {found['news']} messages to its jobs",
        "rates": f"at most {found['starts in a minute']} starts of a key in a minute",
        "events": f"{found['events']}",
        "checks": f"{done['checks']} by fsck during the run, and a complete one at the end",
        "faults": f"{len(report.faults)}",
    }
    text = Text()
    for name, value in rows.items():
        style = ("bold red" if report.faults else "green") if name == "faults" else ""
        text.append(f"{name:<10}", "bold")
        text.append(f" {value}\n", style)
    for note in report.notes:
        text.append(f"note       {note}\n", "dim")
    if report.place:
        text.append(f"kept       {_left(report)}\n", "dim")
    for fault in report.faults[:MOST_FAULTS]:
        text.append(f"fault: {one_line(fault)}\n", "red")
    if len(report.faults) > MOST_FAULTS:
        text.append(f"and {len(report.faults) - MOST_FAULTS} more: -o json has them all\n", "red")
    return text
