"""`perdure jobs`: start, look at and steer jobs."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal
from uuid import UUID

import typer

from perdure.cli import eventtable, inputs, jobtable, steps
from perdure.cli.errors import Exit, Usage
from perdure.cli.options import Paging, command, group
from perdure.cli.output import Column, Mode, status_cell
from perdure.cli.session import Cli
from perdure.cli.words import bare, duration, moment, short
from perdure.model.approvals import Approval
from perdure.model.jobs import Job
from perdure.model.states import TERMINAL, Status

app = group("Start, look at and steer jobs.", "perdure jobs ls --status running")

Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Jobs; - reads ids from stdin")]
Id = Annotated[str, typer.Argument(metavar="ID", help="A job: its id, or 6 or more of its last hex digits")]
Statuses = Annotated[
    list[str] | None, typer.Option("--status", metavar="STATUS", help="In this state; several with commas or repeated")
]
Kinds = Annotated[list[str] | None, typer.Option("--kind", metavar="KIND", help="Of this kind (handler)")]
Queues = Annotated[list[str] | None, typer.Option("--queue", metavar="QUEUE", help="In this queue")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Created since: 24h, or a time")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Created before: 1h, or a time")]
Search = Annotated[
    str | None, typer.Option("--search", metavar="TEXT", help="With this in the goal, the kind or the error")
]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept in the job's log")]


class By(enum.StrEnum):
    """How `jobs count` groups."""

    STATUS = "status"
    KIND = "kind"
    QUEUE = "queue"


def filters(
    status: list[str] | None,
    kind: list[str] | None,
    queue: list[str] | None,
    since: str | None,
    until: str | None,
    search: str | None,
) -> dict[str, Any]:
    """The filter options as `Client.list` takes them. Raises Usage."""
    return {
        "status": inputs.names(status),
        "kind": inputs.names(kind),
        "queue": inputs.names(queue),
        "since": None if since is None else moment(since, "--since", past=True),
        "until": None if until is None else moment(until, "--until", past=True),
        "search": search,
    }


@command(
    app,
    "start",
    example="""\
perdure jobs start research -P topic=coffee -P limit:=3
id=$(perdure jobs start research --input @brief.json -o id)
perdure jobs start greet --input '"world"' --wait=30s --app agents:app""",
)
async def start(
    cli: Cli,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The handler's name")],
    params: Annotated[
        list[str] | None,
        typer.Option("-P", "--param", metavar="KEY=VALUE", help="A key of the input: k=text, k:=json, k=@file"),
    ] = None,
    input: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="The whole input: JSON, @file, or - for stdin")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Idempotency key: the same key is the same job")
    ] = None,
    delay: Annotated[str | None, typer.Option("--delay", metavar="DURATION", help="Start after this: 90s, 15m")] = None,
    run_at: Annotated[
        str | None, typer.Option("--run-at", metavar="TIME", help="Start then: 2026-12-24T18:00Z, tomorrow 09:00")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="Fail if not done by then: a time, or 2h from now")
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="1-9", help="9 is the most urgent; default 5")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Default: the handler's queue")] = None,
    max_retries: Annotated[
        int | None, typer.Option("--max-retries", metavar="N", help="0 to 100; default 3, or the handler's")
    ] = None,
    goal: Annotated[str | None, typer.Option("--goal", metavar="TEXT", help="A message or title for people")] = None,
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="[DURATION]", help="Wait for the end, and print the result")
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Wait, and show every event meanwhile (on stderr)")
    ] = False,
    stop_on_approval: Annotated[
        bool, typer.Option("--stop-on-approval", help="With --wait: end with exit code 9 once it asks somebody")
    ] = False,
    elsewhere: Annotated[
        bool, typer.Option("--elsewhere", help="The handler is not in the App of --app: do not check KIND")
    ] = False,
) -> None:
    """Start a job and print its id. Once the id is printed, the job is never lost.

    With --app the kind and the input are checked against the handler, and its queue, priority and retries apply.
    """
    options: dict[str, Any] = {
        "idempotency_key": key,
        "delay": delay,
        "run_at": None if run_at is None else moment(run_at, "--run-at", past=False),
        "deadline": None if deadline is None else moment(deadline, "--deadline", past=False),
        "priority": priority,
        "queue": queue,
        "max_retries": max_retries,
        "goal": goal,
        "elsewhere": elsewhere or None,
    }
    limit = duration(wait, "--wait") if wait else None
    if stop_on_approval and wait is None and not follow:
        raise Usage("--stop-on-approval goes with --wait or --follow")
    value = inputs.job_input(input, params or [])
    async with cli.client(creates=True) as client:
        handle = await client.enqueue(kind, value, **{k: v for k, v in options.items() if v is not None})
        awaited = wait is not None or follow
        out = cli.out
        if out.for_people or out.mode is Mode.ID:
            print(handle.id, flush=True)
        if not handle.created:
            out.note("this key was used before: the job is the one that was there")
        if not awaited:
            if out.mode in (Mode.JSON, Mode.JSONL):
                await _print_job(cli, client, handle.id)
            elif out.for_people:
                out.note(f"watch it: perdure jobs watch {bare(handle.id)}")
            return
        from perdure.cli.watching import Transcript

        transcript = Transcript(client, out, handle.id, steps=follow, stop_on_approval=stop_on_approval)
        try:
            job = await transcript.run(limit)
        finally:
            if out.mode in (Mode.JSON, Mode.JSONL):
                await _print_job(cli, client, handle.id)
        if out.for_people:
            from perdure.cli.jobpage import pretty

            print(pretty(job.result))


async def _print_job(cli: Cli, client: Any, id: UUID) -> None:
    job = await client.get(id)
    cli.out.rows([job], [], id=lambda j: j.id) if cli.out.mode is Mode.JSONL else cli.out.json(job)


@command(
    app,
    "ls",
    example="""\
perdure jobs ls --status failed,deadletter --since 24h
perdure jobs ls --kind research --search coffee -o wide
perdure jobs ls --all -o jsonl --fields id,status,result""",
)
async def ls(
    cli: Cli,
    page: Paging,
    status: Statuses = None,
    kind: Kinds = None,
    queue: Queues = None,
    since: Since = None,
    until: Until = None,
    search: Search = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="With this idempotency key")] = None,
) -> None:
    """List jobs, newest first."""
    wanted = filters(status, kind, queue, since, until, search)
    asked: dict[UUID, Approval] = {}
    async with cli.client() as client:

        async def fetch(limit: int, cursor: str | None) -> Any:
            found = await client.list(**wanted, idempotency_key=key, limit=limit, cursor=cursor)
            if cli.out.for_people and any(j.status is Status.WAITING_FOR_APPROVAL for j in found.items):
                asked.update({a.job_id: a for a in (await client.approvals(limit=200)).items})
            return found

        await cli.list(
            page,
            fetch,
            jobtable.columns(cli.out.times, asked),
            id=lambda j: j.id,
            nothing="no job matches" if any(wanted.values()) else "no jobs yet; start one: perdure jobs start KIND",
        )


@command(app, "get", example="perdure jobs get 43149ff1\nperdure jobs get 43149ff1 --show steps,result")
async def get(
    cli: Cli,
    ids: Ids,
    show: Annotated[
        list[str] | None,
        typer.Option("--show", metavar="PARTS", help="Only these, in full: payload, result, error, waits, checkpoint, "
                                                    "steps, runs, events, all"),
    ] = None,
) -> int:
    """Show everything about a job: why it is here, what it waits for, what it did."""
    from perdure.cli.jobpage import PARTS, JobPage, Story, next_commands

    parts = ["payload" if p == "input" else p for p in inputs.names(show)]
    if unknown := set(parts) - {*PARTS, "all"}:
        raise Usage(f"--show: there is no part '{min(unknown)}'", hint=f"known: {', '.join([*PARTS, 'all'])}")
    if "all" in parts:
        parts = list(PARTS)
    chosen = inputs.ids_given(ids)
    async with cli.client() as client:

        async def show_one(id: str) -> None:
            job = await client.get(id)
            approvals = (await client.approvals(job_id=job.id)).items if job.waits else ()
            story = Story(job, await client.events(job.id), await client.runs(job.id), approvals)
            out = cli.out

            def page() -> Any:
                laid = JobPage(story, out.times, out.width)
                return laid.only(parts) if parts else laid.whole()

            out.one(story, page, id=job.id, plain=lambda s: s.as_json(parts))
            if out.for_people and not parts and not out.fields:
                out.note("next:  " + "\n       ".join(next_commands(job, approvals)))

        _, code = await cli.each(chosen, show_one)
    return code


@command(app, "watch", example="perdure jobs watch 43149ff1 --timeout 30m\nperdure jobs watch --kind research")
async def watch(
    cli: Cli,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Jobs; none: those of the filters")] = None,
    status: Statuses = None,
    kind: Kinds = None,
    queue: Queues = None,
    since: Since = None,
    until: Until = None,
    search: Search = None,
    timeout: Annotated[str | None, typer.Option("--timeout", metavar="DURATION", help="Give up after this")] = None,
) -> int:
    """Watch jobs until they are done: a live table, or a line per change of state where there is no terminal.

    Without ids it watches the jobs that match the filters and are not finished. The exit code is that of the worst outcome.
    """
    from perdure.cli.watching import Watch

    wanted = filters(status, kind, queue, since, until, search)
    if ids and any(wanted.values()):
        raise Usage("give ids or filters, not both")
    limit = None if timeout is None else duration(timeout, "--timeout")
    async with cli.client() as client:
        if ids:
            jobs, code = await cli.each(inputs.ids_given(ids), client.get)
            if code:
                return code
        else:
            wanted["status"] = wanted["status"] or [s for s in Status if s not in TERMINAL]
            jobs = list((await client.list(**wanted, limit=200)).items)
        if not jobs:
            cli.out.note("nothing to watch: no unfinished job matches")
            return Exit.OK
        return await Watch(client, cli.out, jobs, timeout=limit).run()


@command(app, "events", example="perdure jobs events 43149ff1 -f\nperdure jobs events 43149ff1 --type tool_called -o jsonl")
async def events(
    cli: Cli,
    id: Id,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what happens, to the job's end")] = False,
    from_version: Annotated[int, typer.Option("--from", metavar="N", help="From this version on", min=1)] = 1,
    types: Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Only events of this type")] = None,
) -> None:
    """Print a job's log: every event, in order."""
    wanted = set(inputs.names(types))
    out = cli.out
    async with cli.client() as client:
        columns = eventtable.columns(out.times)
        if not follow:
            found = await client.events(id, after=from_version - 1)
            shown = [e for e in found if not wanted or e.type in wanted]
            out.rows(shown, columns, id=lambda e: e.event_id or e.version, plain=eventtable.as_json)
            if not shown and out.for_people:
                out.note("no such event")
            return
        if out.mode is Mode.JSON:
            raise Usage("-o json prints one document; following needs lines", hint="use -o jsonl")
        async for event in client.watch(id, from_version - 1):
            if wanted and event.type not in wanted:
                continue
            if out.mode is Mode.JSONL:
                out.json_line(eventtable.as_json(event))
            elif out.for_people:
                print(eventtable.line(event, out.times), flush=True)
            elif out.mode is Mode.ID:
                print(event.event_id or event.version, flush=True)


@command(app, "steps", example="perdure jobs steps 43149ff1")
async def steps_(cli: Cli, id: Id) -> None:
    """Show a job's steps: what is recorded and never runs again, what runs, what waits."""
    async with cli.client() as client:
        found = steps.steps_of(await client.events(id))
    cli.out.rows(found, steps.columns(cli.out.times), id=lambda s: s.key)
    if not found and cli.out.for_people:
        cli.out.note("no steps yet")


@command(
    app,
    "cancel",
    example="""\
perdure jobs cancel 43149ff1 --reason 'no longer needed'
perdure jobs ls --kind research -o id | perdure jobs cancel - --yes""",
)
async def cancel(
    cli: Cli,
    ids: Ids,
    reason: Reason = None,
    force: Annotated[
        bool, typer.Option("--force", help="Do not wait for the worker to stop it: fence it off at once")
    ] = False,
) -> int:
    """Cancel jobs, in any state. A running one is stopped by its worker, within a second as a rule."""
    chosen = inputs.ids_given(ids)
    if len(chosen) > 1:
        cli.confirm(f"Cancel {len(chosen)} jobs?")
    async with cli.client() as client:

        async def cancel_one(id: str) -> tuple[str, Status]:
            job = await client.get(id)
            return str(job.id), await client.cancel(job.id, reason, force=force)

        done, code = await cli.each(chosen, cancel_one)
    _print_statuses(cli, done)
    if cli.out.for_people and any(not s.terminal for _, s in done):
        cli.out.note("its worker was asked to stop it; after 10 s without an answer it is fenced off")
    return code


@command(app, "retry-now", example="perdure jobs retry-now 43149ff1")
async def retry_now(cli: Cli, ids: Ids, reason: Reason = None) -> int:
    """Make jobs due now that wait for their next try or for a delayed start."""
    chosen = inputs.ids_given(ids)
    async with cli.client() as client:

        async def retry_one(id: str) -> tuple[str, Status]:
            job = await client.get(id)
            await client.retry_now(job.id, reason)
            return str(job.id), (await client.get(job.id)).status

        done, code = await cli.each(chosen, retry_one)
    _print_statuses(cli, done)
    return code


@command(app, "rerun", example="perdure jobs rerun 43149ff1\nperdure jobs ls --status failed -o id | perdure jobs rerun -")
async def rerun(cli: Cli, ids: Ids, reason: Reason = None) -> int:
    """Start new jobs with the same input and print their ids. The old ones stay as they are."""
    chosen = inputs.ids_given(ids)
    async with cli.client() as client:

        async def rerun_one(id: str) -> Job:
            job = await client.get((await client.rerun(id, reason)).id)
            if cli.out.for_people:
                print(job.id, flush=True)
            return job

        done, code = await cli.each(chosen, rerun_one)
    if not cli.out.for_people:
        cli.out.rows(done, [], id=lambda j: j.id)
    else:
        for job in done:
            cli.out.note(f"{short(job.id)} reruns {short(job.origin_id)}; watch it: perdure jobs watch {bare(job.id)}")
    return code


@command(app, "count", example="perdure jobs count --by kind --status failed,deadletter")
async def count(
    cli: Cli,
    by: Annotated[By, typer.Option("--by", metavar="status|kind|queue", help="How to group")] = By.STATUS,
    status: Statuses = None,
    kind: Kinds = None,
    queue: Queues = None,
    since: Since = None,
    until: Until = None,
    search: Search = None,
) -> None:
    """Count jobs by status, kind or queue."""
    wanted = filters(status, kind, queue, since, until, search)
    group_by: Literal["status", "kind", "queue"] = by.value  # type: ignore[assignment]  # its values are these three
    async with cli.client() as client:
        found = await client.count(by=group_by, **wanted)
    order = list(Status)
    if by is By.STATUS:
        found = {s.value: found[s] for s in order if s in found}
    out = cli.out
    if out.mode is Mode.JSON:
        out.json(found)
        return
    rows = [{by.value: name, "jobs": number} for name, number in found.items()]
    columns: list[Column[dict[str, Any]]] = [
        Column(by.value, lambda r: status_cell(r[by.value]) if by is By.STATUS else str(r[by.value])),
        Column("jobs", lambda r: str(r["jobs"]), right=True),
    ]
    out.rows(rows, columns, id=lambda r: r[by.value], plain=dict)
    if not rows and out.for_people:
        out.note("no job matches")


def _print_statuses(cli: Cli, done: list[tuple[str, Status]]) -> None:
    columns: list[Column[tuple[str, Status]]] = [
        Column("status", lambda d: status_cell(d[1])),
        Column("job", lambda d: short(d[0])),
    ]
    rows, out = done, cli.out
    if out.mode in (Mode.TABLE, Mode.WIDE):
        from perdure.cli.output import laid_out

        if rows:
            table = laid_out([[c.cell(r) for c in columns] for r in rows], columns, out.width)
            out.print(table.split("\n")[1] if len(rows) == 1 else table)
        return
    out.rows(rows, columns, id=lambda d: d[0], plain=lambda d: {"id": d[0], "status": d[1]})
