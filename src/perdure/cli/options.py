"""What every command shares: the global options, and the decorator that gives them to a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from perdure.cli.help import GLOBAL_PANEL, Command, Group

F = TypeVar("F", bound=Callable[..., Any])

OUTPUTS = ("table", "wide", "json", "jsonl", "id", "none")
COLORS = ("auto", "always", "never")
TIME_FORMATS = ("relative", "iso", "epoch")


def _choice(*names: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value is not None and value not in names:
            raise typer.BadParameter(f"'{value}' is none of {', '.join(names)}")
        return value

    return check


def _completes(*names: str) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [n for n in names if n.startswith(incomplete)]

    return complete


def _global(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=GLOBAL_PANEL, show_default=False, **more)


@dataclass(slots=True)
class Flags:
    """The global options as given; None and False where they were not."""

    db: Annotated[
        str | None,
        _global("--db", metavar="URL", help="memory:, sqlite:///path or postgresql://... (PERDURE_DATABASE_URL)"),
    ] = None
    tenant: Annotated[str | None, _global("--tenant", metavar="NAME", help="Whose jobs (PERDURE_TENANT)")] = None
    app: Annotated[
        str | None, _global("--app", metavar="MODULE:ATTR", help="Your App, from the current directory (PERDURE_APP)")
    ] = None
    output: Annotated[
        str | None,
        _global(
            "-o",
            "--output",
            metavar="|".join(OUTPUTS),
            help="How to print data (PERDURE_OUTPUT)",
            callback=_choice(*OUTPUTS),
            autocompletion=_completes(*OUTPUTS),
        ),
    ] = None
    json: Annotated[bool, _global("--json", help="The same as -o json")] = False
    fields: Annotated[
        str | None, _global("--fields", metavar="A,B,C", help="Only these columns, or keys of the JSON")
    ] = None
    quiet: Annotated[bool, _global("-q", "--quiet", help="No messages but errors")] = False
    verbose: Annotated[int, _global("-v", "--verbose", count=True, help="More messages; tracebacks of bugs")] = 0
    color: Annotated[
        str | None,
        _global(
            "--color",
            metavar="|".join(COLORS),
            help="Colour the output (NO_COLOR, FORCE_COLOR)",
            callback=_choice(*COLORS),
            autocompletion=_completes(*COLORS),
        ),
    ] = None
    time_format: Annotated[
        str | None,
        _global(
            "--time-format",
            metavar="|".join(TIME_FORMATS),
            help="How to print times; iso when not on a terminal",
            callback=_choice(*TIME_FORMATS),
            autocompletion=_completes(*TIME_FORMATS),
        ),
    ] = None
    no_input: Annotated[bool, _global("--no-input", help="Never ask (also where CI is set)")] = False
    yes: Annotated[bool, _global("-y", "--yes", help="Answer every question with yes")] = False


@dataclass(slots=True)
class Paging:
    """The options of every list."""

    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most this many", min=1)] = 50
    cursor: Annotated[str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on where a page ended")] = None
    all: Annotated[bool, typer.Option("--all", help="Every page")] = False


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
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_help_unless_invoked)
    return app


def _help_unless_invoked(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), end="")


def command(app: typer.Typer, name: str, *, example: str, hidden: bool = False) -> Callable[[F], F]:
    """Make a command of a function `(cli: Cli, [page: Paging,] ...)`: the global options become `cli`, those of lists `page`.

    The function may be async; it returns an exit code or None.
    """

    def register(fn: F) -> F:
        own = list(inspect.signature(fn).parameters.values())[1:]
        hints = get_type_hints(fn, include_extras=True)
        paged = bool(own) and hints[own[0].name] is Paging
        if paged:
            own = own[1:]

        def run(ctx: typer.Context, **given: Any) -> Any:
            from perdure.cli.session import Cli

            flags = merged(ctx.obj, {f.name: given.pop(f.name) for f in fields(Flags)})
            cli = Cli(flags)
            if paged:
                given = {"page": Paging(**{f.name: given.pop(f.name) for f in fields(Paging)}), **given}
            return cli.run(fn, given)

        parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
        parameters += [p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        parameters += _parameters(Paging) if paged else []
        parameters += _parameters(Flags)
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


def global_options(fn: Callable[[typer.Context, dict[str, Any]], None]) -> Callable[..., None]:
    """The root's callback: it takes the global options too, so that they may stand before the command."""

    def run(ctx: typer.Context, **given: Any) -> None:
        fn(ctx, given)

    parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    parameters += _parameters(Flags)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions carry attributes
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def merged(before: dict[str, Any] | None, given: dict[str, Any]) -> Flags:
    """Options before the command, overridden by those after it."""
    values = dict(before or {})
    values.update({k: v for k, v in given.items() if v})
    return Flags(**values)


def _parameters(cls: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(cls, include_extras=True)
    return [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in fields(cls)
    ]
