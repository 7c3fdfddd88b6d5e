"""What every command shares: the global options, and the decorator that gives them to a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from perdure.cli.flags import OUTPUTS, Flags, Paging
from perdure.cli.help import SHARED, Command, Group

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class GlobalOption:
    """One option of every command; without a metavar it is a switch."""

    field: str
    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()

    def parameter(self) -> inspect.Parameter:
        """As a parameter of a command's function."""
        more: dict[str, Any] = {}
        annotation: Any = str | None if self.metavar else bool
        if self.choices:
            more = {"callback": _one_of(self.choices)}
        if self.field == "verbose":
            annotation, more = int, {"count": True}
        option = typer.Option(
            *self.names, metavar=self.metavar, help=self.help, show_default=False, rich_help_panel=SHARED, **more
        )
        return inspect.Parameter(
            self.field,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(Flags(), self.field),
            annotation=Annotated[annotation, option],
        )


def _choice(field: str, names: tuple[str, ...], help: str, choices: tuple[str, ...]) -> GlobalOption:
    return GlobalOption(field, names, help, "|".join(choices), choices)


GLOBALS = (
    GlobalOption("db", ("--url", "--db"), "memory:, sqlite:///path or postgresql://... (PERDURE_DATABASE_URL)", "URL"),
    GlobalOption("tenant", ("--tenant",), "Whose jobs (PERDURE_TENANT)", "NAME"),
    GlobalOption(
        "app",
        ("--app",),
        "Your App, from the current directory (PERDURE_APP, which is loaded only where handlers are needed)",
        "MODULE:ATTR",
    ),
    _choice("output", ("-o", "--output"), "How to print data (PERDURE_OUTPUT)", OUTPUTS),
    GlobalOption("json", ("--json",), "The same as -o json"),
    GlobalOption("fields", ("--fields",), "Only these columns, or keys of the JSON", "A,B,C"),
    GlobalOption("quiet", ("-q", "--quiet"), "Print no messages except errors"),
    GlobalOption("verbose", ("-v", "--verbose"), "More messages, tracebacks of bugs; -vv: of all errors"),
    _choice("color", ("--color",), "Use colours (NO_COLOR, FORCE_COLOR)", ("auto", "always", "never")),
    _choice(
        "time_format",
        ("--time-format",),
        "How to print times; iso when not on a terminal",
        ("relative", "iso", "epoch"),
    ),
    GlobalOption("no_input", ("--no-input",), "Never ask for confirmation (also where CI is set)"),
    GlobalOption("yes", ("-y", "--yes"), "Answer every question with yes"),
)


def leading(args: list[str]) -> tuple[list[str], list[str]]:
    """Split a command line into the global options before the command, and the rest."""
    takes_value = {name: bool(o.metavar) for o in GLOBALS for name in o.names}
    rest = list(args)
    before: list[str] = []
    while rest:
        name, equals, _ = rest[0].partition("=")
        glued = rest[0][:2] if len(rest[0]) > 2 and not rest[0].startswith("--") else ""
        if name not in takes_value and glued not in takes_value:
            break
        before.append(rest.pop(0))
        if takes_value.get(name) and not equals and not glued:
            before += rest[:1]
            rest = rest[1:]
    return before, rest


def _options_of(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for f in fields(group):
        yield inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])


def group(help: str, example: str) -> typer.Typer:
    """A group of commands under one noun."""
    app = typer.Typer(
        cls=Group,
        help=help,
        epilog=example,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        invoke_without_command=True,
        add_help_option=False,
    )
    app.callback()(_help_unless_invoked)
    return app


def _help_unless_invoked(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


def command(app: typer.Typer, name: str, *, example: str, hidden: bool = False) -> Callable[[F], F]:
    """Make a command of a function `(cli: Cli, ...)`: the global options become `cli`.

    A parameter whose type is a dataclass stands for the options that are its fields, as `page: Paging`, whose options come last.
    The function may be async; it returns an exit code or None.
    """

    def register(fn: F) -> F:
        own = list(inspect.signature(fn).parameters.values())[1:]
        hints = get_type_hints(fn, include_extras=True)
        groups = {p.name: hints[p.name] for p in own if is_dataclass(hints[p.name])}

        def run(ctx: typer.Context, **given: Any) -> Any:
            from perdure.cli.context import Cli

            del ctx
            cli = Cli(Flags(**{o.field: given.pop(o.field) for o in GLOBALS}))
            for parameter, options in groups.items():
                given[parameter] = options(**{f.name: given.pop(f.name) for f in fields(options)})
            return cli.run(fn, given)

        parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
        for p in sorted(own, key=lambda p: hints[p.name] is Paging):
            if p.name in groups:
                parameters += _options_of(groups[p.name])
            else:
                parameters.append(p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY))
        parameters += [o.parameter() for o in GLOBALS]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions carry attributes
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__doc__ = fn.__doc__
        run.__name__ = fn.__name__
        app.command(
            name,
            cls=Command,
            help=fn.__doc__,
            epilog=example,
            hidden=hidden,
            context_settings={"help_option_names": ["-h", "--help"]},
        )(run)
        return fn

    return register


def _one_of(choices: tuple[str, ...]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value is not None and value not in choices:
            raise typer.BadParameter(f"'{value}' is not one of {', '.join(choices)}")
        return value

    return check
