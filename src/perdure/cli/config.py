"""`perdure config`: the settings and where each comes from."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli.context import Cli
from perdure.cli.format import clean_text
from perdure.cli.options import command, group
from perdure.cli.output import Column, Mode
from perdure.cli.usage_error import Usage
from perdure.config import BY_NAME, PROJECT_FILE, SETTINGS, shown

app = group("Show the settings and where each comes from.", "perdure config ls --origin")


@command(app, "ls", example="perdure config ls --origin")
def ls(
    cli: Cli,
    origin: Annotated[
        bool, typer.Option("--origin", help="Also where each value comes from: a flag, a variable, a file, the default")
    ] = False,
) -> None:
    """List every setting with its value. A password in a URL is not shown."""
    settings = cli.settings
    rows: list[dict[str, Any]] = [
        {
            "name": s.name,
            "value": shown(s, settings[s.name]),
            "origin": settings.origins[s.name],
            "variable": s.variable,
            "help": s.help,
        }
        for s in SETTINGS
    ]
    columns: list[Column[dict[str, Any]]] = [
        Column("name", lambda r: r["name"]),
        Column("value", lambda r: r["value"], flexible=True),
        Column("origin", lambda r: r["origin"], wide=not origin, flexible=True),
        Column("variable", lambda r: r["variable"], wide=True),
        Column("help", lambda r: r["help"], wide=True, flexible=True),
    ]
    cli.out.rows(rows, columns, id=lambda r: r["name"], plain=dict)


@command(app, "get", example="perdure config get database_url")
def get(cli: Cli, name: Annotated[str, typer.Argument(metavar="NAME", help="A setting's name")]) -> None:
    """Print one setting's value."""
    key = name.lower().replace("-", "_").removeprefix("perdure_")
    if key not in BY_NAME:
        near = difflib.get_close_matches(key, BY_NAME, 1)
        guess = f"did you mean '{near[0]}'? " if near else ""
        raise Usage(f"there is no setting '{name}'", hint=f"{guess}known: {', '.join(BY_NAME)}")
    value, origin = shown(BY_NAME[key], cli.settings[key]), cli.settings.origins[key]
    if cli.out.for_people or cli.out.mode is Mode.ID:
        print(clean_text(value))
    else:
        cli.out.rows([{"name": key, "value": value, "origin": origin}], [], id=lambda r: r["name"], plain=dict)


@command(app, "path", example="perdure config path")
def path(cli: Cli) -> None:
    """Print the files that settings are read from, in order of precedence, and whether they exist."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    files = [Path.cwd() / PROJECT_FILE, Path(home, "perdure", "config.toml")]
    rows: list[dict[str, Any]] = [{"path": str(f), "exists": f.exists()} for f in files]
    if cli.out.mode is Mode.TABLE and cli.out.fields is None:
        for row in rows:
            print(row["path"] + ("" if row["exists"] else "  (not there)"))
        return
    columns: list[Column[dict[str, Any]]] = [
        Column("path", lambda r: r["path"]),
        Column("exists", lambda r: "yes" if r["exists"] else "no"),
    ]
    cli.out.rows(rows, columns, id=lambda r: r["path"], plain=dict)
