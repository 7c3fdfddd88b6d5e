"""Typer's commands with our help pages, aliases and lazily loaded groups. It imports typer and nothing else."""

from __future__ import annotations

import difflib
import inspect
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

NOUNS = {
    "jobs",
    "tasks",
    "accounts",
    "agents",
    "approvals",
    "limits",
    "queues",
    "schedules",
    "memory",
    "worker",
    "db",
    "config",
}
"""Groups of commands."""
ALIASES = {
    "list": "ls",
    "show": "get",
    "job": "jobs",
    "agent": "agents",
    "approval": "approvals",
    "limit": "limits",
    "queue": "queues",
    "schedule": "schedules",
    "workers": "worker",
    "database": "db",
    "retry": "retry-now",
    "completions": "completion",
}
SHARED = "Global options"
"""What marks an option of every command: it is explained once, by `perdure --help`."""

EXIT_CODES = """\
Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 not permitted, 5 conflict, 6 awaited job failed, 7 cancelled or denied,
8 wait timed out, 9 stopped at an approval, 10 database unreachable, 11 hanging calls or a blocked worker, 130 and 143
by signal."""

_DURATION = re.compile(r"\d+(\.\d+)?(ms|s|m|h|d|w)(\d+(ms|s|m|h|d|w))*")


class Command(TyperCommand):
    """A command with one or more examples (its epilog), and options whose value may be left out (`--wait`, `--wait=30s`)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the global options that stood before the command as well, and give `--wait` without a value the empty one."""
        optional = {n for p in self.params if getattr(p, "metavar", None) == "[DURATION]" for n in p.opts}
        return super().parse_args(ctx, [*(ctx.obj or ()), *(_with_values(args, optional) if optional else args)])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, what it does, its options, an example; the global options in one line."""
        page = Page(ctx, formatter)
        page.usage(self)
        page.text(self.help)
        page.arguments(self.params)
        page.options(self.params)
        page.examples(self.epilog)
        shared = [p.opts[-1] for p in self.params if _is_shared(p)]
        page.text("Global options, explained by `perdure --help`: " + " ".join(shared))


class Group(TyperGroup):
    """A group of commands; without one it prints its help. Hidden aliases: `list`, `show`, singular and plural nouns.
    `shared` are the options to be explained here for all commands."""

    shared: Sequence[tuple[str, str]] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the help if it is asked for. Typer's own help option would load pydantic on the way to every command."""
        if args[:1] in (["-h"], ["--help"]) and not ctx.resilient_parsing:
            print(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name or alias."""
        known = super().get_command(ctx, cmd_name)
        return known or super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer's, with the nearest name in the error."""
        if self.get_command(ctx, args[0]) is None:
            names = self.list_commands(ctx)
            near = difflib.get_close_matches(args[0], [*names, *ALIASES], 1)
            guess = f"; did you mean '{ALIASES.get(near[0], near[0])}'?" if near else ""
            ctx.fail(f"there is no command '{ctx.command_path} {args[0]}'{guess}\nknown: {', '.join(names)}")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, what it is, its commands."""
        page = Page(ctx, formatter)
        page.usage(self)
        page.text(self.help)
        page.table("Commands", self.summaries(ctx))
        page.table("Global options", self.shared)
        page.examples(self.epilog)

    def summaries(self, ctx: Any) -> list[tuple[str, str]]:
        """Name and first sentence of every command."""
        shown = (name for name in self.list_commands(ctx) if not self.commands[name].hidden)
        return [(name, first_sentence(self.commands[name].help)) for name in shown]


class LazyGroup(Group):
    """A group whose members are loaded when they are asked for. `members`: name -> (module, first sentence). `unlisted`: further
    names of commands in these modules, which no help lists."""

    members: dict[str, tuple[str, str]]
    unlisted: Mapping[str, str] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """The members' names, in their order."""
        del ctx
        return list(self.members)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the member and build its commands."""
        del ctx
        name = cmd_name if cmd_name in self.members else ALIASES.get(cmd_name, cmd_name)
        if name in self.members and name not in self.commands:
            app = import_module(self.members[name][0]).app
            built: Any = typer.main.get_command(app)
            if name not in NOUNS:
                built = built.commands[name]
            self.commands[name] = built
        elif name in self.unlisted and name not in self.commands:
            group: Any = typer.main.get_command(import_module(self.unlisted[name]).app)
            self.commands[name] = group.commands[name]
        return self.commands.get(name)

    def summaries(self, ctx: Any) -> list[tuple[str, str]]:
        """As written here: a help page loads nothing."""
        del ctx
        return [(name, summary) for name, (_, summary) in self.members.items()]


class Page:
    """Writes a help page; the same on every version of typer."""

    def __init__(self, ctx: Any, formatter: Any) -> None:
        self._ctx = ctx
        self._out = formatter
        self._width = min(shutil.get_terminal_size().columns, 110)
        self._style = styled_help()

    def usage(self, command: Any) -> None:
        """`Usage: perdure jobs get [OPTIONS] ID`."""
        pieces = " ".join(_usage_piece(p) for p in command.params if p.param_type_name == "argument")
        if isinstance(command, TyperGroup):
            pieces = "COMMAND ..."
        self._out.write(f"{self._bold('Usage:')} {self._ctx.command_path} [OPTIONS]{' ' if pieces else ''}{pieces}\n")

    def text(self, text: str | None) -> None:
        """Paragraphs, wrapped."""
        for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text or "")):
            if paragraph:
                self._out.write("\n" + textwrap.fill(" ".join(paragraph.split()), self._width) + "\n")

    def arguments(self, params: Iterable[Any]) -> None:
        """What stands without a dash."""
        rows = [(_usage_piece(p), p.help) for p in params if p.param_type_name == "argument" and p.help]
        self.table("Arguments", rows)

    def options(self, params: Iterable[Any]) -> None:
        """Options with their help, but for those of every command."""
        own = [p for p in params if p.param_type_name == "option" and not p.hidden and not _is_shared(p)]
        rows = [option_row(p) for p in own if p.name != "help"]
        self.table("Options", rows)

    def examples(self, text: str | None) -> None:
        """Lines to be copied, as they are."""
        if text:
            heading = "Examples:" if "\n" in text else "Example:"
            self._out.write(f"\n{self._bold(heading)}\n{textwrap.indent(inspect.cleandoc(text), '  ')}\n")

    def table(self, heading: str, rows: Sequence[tuple[str, str]]) -> None:
        """Two columns."""
        if not rows:
            return
        self._out.write(f"\n{self._bold(heading + ':')}\n")
        column = min(max(len(left) for left, _ in rows) + 4, 34)
        for left, right in rows:
            lines = textwrap.wrap(right, max(self._width - column, 30)) or [""]
            if len(left) + 4 > column:
                self._out.write(f"  {self._cyan(left)}\n")
            else:
                self._out.write(f"  {self._cyan(left)}{' ' * (column - 2 - len(left))}{lines.pop(0)}\n")
            for line in lines:
                self._out.write(f"{' ' * column}{line}\n")

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._style else text

    def _cyan(self, text: str) -> str:
        return f"\x1b[36m{text}\x1b[0m" if self._style else text


def first_sentence(text: str | None) -> str:
    """The first sentence of a help text, up to its full stop or colon."""
    return re.split(r"(?<=[a-z)\]])[.:](?:\s|$)", " ".join((text or "").split()), maxsplit=1)[0]


def styled_help() -> bool:
    """Whether help pages may use colour."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def _usage_piece(param: Any) -> str:
    name = (param.metavar or param.name).upper()
    many = "..." if param.nargs != 1 else ""
    return f"{name}{many}" if param.required else f"[{name}{many}]"


def _is_shared(param: Any) -> bool:
    return getattr(param, "rich_help_panel", None) == SHARED


def option_row(param: Any) -> tuple[str, str]:
    """An option as a help page shows it: names with the value, and the help."""
    names = ", ".join([*param.opts, *param.secondary_opts])
    if not (param.is_flag or param.count):
        glue = "" if param.metavar == "[DURATION]" else " "
        value = "[=DURATION]" if param.metavar == "[DURATION]" else param.metavar or "TEXT"
        names += glue + value
    return names, " ".join((param.help or "").split())


def _with_values(args: list[str], optional: set[str]) -> list[str]:
    given: list[str] = []
    rest = list(args)
    while rest:
        arg = rest.pop(0)
        if arg == "--":
            return [*given, arg, *rest]
        if arg in optional:
            value = rest.pop(0) if rest and _DURATION.fullmatch(rest[0]) else ""
            arg = f"{arg}={value}"
        given.append(arg)
    return given
