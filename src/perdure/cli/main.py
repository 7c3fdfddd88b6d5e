"""The tree of commands, and the start and end of the program."""

from __future__ import annotations

import codecs
import os
import sys
from functools import cache
from typing import Any, NoReturn

import typer

from perdure.cli.help import EXIT_CODES, LazyGroup
from perdure.cli.options import GLOBALS, leading

HELP = f"""\
Durable jobs for AI agents and coding CLIs, on your PostgreSQL or an embedded SQLite file.

Reads and writes go straight to the database: no server is needed. Ids are whole or their last 6 or more hex digits; `-` reads
them from stdin.

{EXIT_CODES}"""

EXAMPLES = """\
perdure dev                                      try it: a store, a worker and three jobs in this terminal
perdure jobs start research -P topic=coffee --wait --app agents:app
perdure jobs ls --status failed,deadletter --since 24h
perdure approvals approve 9a8b7c6d --comment 'ok, small diff'
perdure worker start --app agents:app --processes 4
perdure help job-not-found                       what the code of an error means"""


class Root(LazyGroup):
    """`perdure`."""

    shared = [  # noqa: RUF012  as below
        (f"{', '.join(o.names)}{' ' + o.metavar if o.metavar else ''}", o.help) for o in GLOBALS
    ]
    unlisted = dict.fromkeys(("get", "ls", "cancel", "requeue"), "perdure.cli.tasks")
    """The design document's names of commands on tasks."""
    members = {  # noqa: RUF012  typer's classes are not ours to annotate
        "dev": ("perdure.cli.dev", "One process: a store, a worker and a live table of its jobs"),
        "demo": ("perdure.cli.basics", "Watch a job lose its worker, wait for your approval and finish"),
        "jobs": ("perdure.cli.jobs", "Start, read and control jobs"),
        "enqueue": ("perdure.cli.task_start", "Start a task: a job that runs a coding CLI"),
        "tasks": ("perdure.cli.tasks", "Read and control tasks, their output and files"),
        "accounts": ("perdure.cli.accounts", "Add and control the accounts of coding CLIs"),
        "agents": ("perdure.cli.agents", "Create agents, send them messages, read their mailboxes"),
        "approvals": ("perdure.cli.approvals", "Read and decide approvals"),
        "limits": ("perdure.cli.limits", "See and set how many jobs of a key run at a time"),
        "queues": ("perdure.cli.queues", "See, pause and resume queues"),
        "schedules": ("perdure.cli.schedules", "Start jobs by cron, at an interval, or once"),
        "memory": ("perdure.cli.memory", "Search and write long-term memory"),
        "worker": ("perdure.cli.worker", "Run jobs; list and stop workers"),
        "db": ("perdure.cli.db", "Migrate, inspect, copy and prune the database"),
        "config": ("perdure.cli.config", "Show the settings and where each comes from"),
        "fsck": ("perdure.cli.fsck", "Check that every job fits its log, and repair what is safe"),
        "doctor": ("perdure.cli.doctor", "Check the installation, the database, workers and stuck jobs"),
        "chaos": ("perdure.cli.chaos", "Kill worker processes, and check that no job is lost or runs wrongly"),
        "completion": ("perdure.cli.basics", "Print a completion script for your shell"),
        "version": ("perdure.cli.basics", "Print the version"),
        "help": ("perdure.cli.help_command", "Explain a command, or an error or fault by its code"),
    }


@cache
def root() -> Any:
    """The command tree, as typer's own object."""
    app = typer.Typer(
        cls=Root,
        help=HELP,
        epilog=EXAMPLES,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        invoke_without_command=True,
        add_help_option=False,
    )
    app.callback()(_root)
    return typer.main.get_command(app)


def _root(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


def main(args: list[str] | None = None) -> NoReturn:
    """Run one command line and exit with its exit code."""
    sys.exit(run(sys.argv[1:] if args is None else args))


def run(args: list[str]) -> int:
    """Run one command line and return its exit code. An error is printed to stderr."""
    _prepare_streams()
    if shell := os.environ.get("_PERDURE_COMPLETE"):
        from perdure.cli.completion import answer

        return answer(root(), shell, args)
    if args[:1] == ["--version"]:
        args = ["version", *args[1:]]
    name = os.path.basename(sys.argv[0]) if sys.argv else ""  # noqa: PTH119  pathlib is slow to load
    name = name if name in {"perdure", "schedulerctl"} else "perdure"
    before, after = leading(args)
    try:
        code = root().main(args=after, prog_name=name, standalone_mode=False, obj=before)
        sys.stdout.flush()
    except BrokenPipeError:
        from perdure.cli.errors import pipe_closed

        return pipe_closed()
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001  the one place where every error becomes a message and an exit code
        return _failed(error, args)
    return code if isinstance(code, int) else 0


def _prepare_streams() -> None:
    """Replace closed streams, and write characters that the terminal's encoding lacks as JSON escapes."""
    codecs.register_error("perdure.json_escape", _json_escaped)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  open to the end; pathlib is slow to load
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="perdure.json_escape")


def _json_escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Escape as JSON does, because the text may be JSON: `backslashreplace` writes \xe9 and \U0001f600, which are not JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4)), error.end


PLAINLY = (
    ("Value error, ", ""),
    ("Input should be a valid integer, unable to parse string as an integer", "it must be a whole number"),
    ("Input should be greater than or equal to", "it must be at least"),
    ("Input should be less than or equal to", "it must be at most"),
    ("Input should be", "it must be"),
)
"""What pydantic, which reads the values for typer, says of a wrong one; and what a person is shown."""


def _failed(error: Exception, args: list[str]) -> int:
    from perdure.cli.errors import report
    from perdure.cli.usage_error import Usage

    if hasattr(error, "format_message"):  # typer's own: the command line cannot be read
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "perdure"
        message = error.format_message()
        for theirs, ours in PLAINLY:
            message = message.replace(theirs, ours)
        error = Usage(message[:1].lower() + message[1:].rstrip("."), hint=f"see {path} --help")
    return report(
        error, as_json=_wants_json(args), as_log=_logs_json(args), verbose=_verbosity(args), color=_color(args)
    )


def _logs_json(args: list[str]) -> bool:
    """Whether this is a worker whose log is JSON; also of a command line that cannot be read otherwise."""
    if leading(args)[1][:2] not in (["worker", "start"], ["workers", "start"]):
        return False
    from perdure.config import load_setting
    from perdure.model.errors import ConfigError

    try:
        return bool(load_setting("log_format", _value_of("--log-format", args)) == "json")
    except ConfigError:
        return False


def _value_of(name: str, args: list[str]) -> str | None:
    """The value of an option of a command line, however that is written."""
    from itertools import pairwise

    glued = (a.partition("=")[2] for a in args if a.startswith(name + "="))
    return next((b for a, b in pairwise(args) if a == name), None) or next(glued, None)


def _wants_json(args: list[str]) -> bool:
    """Whether data was asked for as JSON; also of a command line that cannot be read otherwise."""
    asked = os.environ.get("PERDURE_OUTPUT", "")
    for number, arg in enumerate(args):
        if arg == "--json":
            return True
        if arg in ("-o", "--output"):
            asked = "".join(args[number + 1 : number + 2])
        elif arg.startswith("--output="):
            asked = arg.partition("=")[2]
        elif arg.startswith("-o"):
            asked = arg[2:]
    return asked in ("json", "jsonl")


def _verbosity(args: list[str]) -> int:
    return sum(a.count("v") for a in args if a == "--verbose" or (a.startswith("-v") and not a.strip("-v")))


def _color(args: list[str]) -> bool:
    from perdure.cli.output import wants_color

    return wants_color(_value_of("--color", args), sys.stderr)
