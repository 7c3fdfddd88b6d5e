"""`perdure doctor`: check the installation, the database, workers and stuck jobs."""

from __future__ import annotations

import platform
import shlex
from collections.abc import AsyncIterator
from dataclasses import replace

from rich.text import Text

from perdure import __version__
from perdure.cli.context import Cli
from perdure.cli.errors import AppNotFound, Exit
from perdure.cli.format import clean_text
from perdure.cli.options import command, group
from perdure.config import BY_NAME, shown
from perdure.model.errors import PerdureError
from perdure.operations.diagnose import Check, diagnose

app = group("Check the installation, the database, workers and stuck jobs.", "perdure doctor")

ICONS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "wrong": ("✕", "red")}


@command(app, "doctor", example="perdure doctor\nperdure doctor -o json | jq '.checks[] | select(.status != \"ok\")'")
async def doctor(cli: Cli) -> int:
    """Check the installation, the database, the clock, the workers and jobs that are stuck. Exit code 1 if something is wrong."""
    checks = [
        Check("perdure", "ok", __version__),
        Check("python", "ok", f"{platform.python_version()} on {platform.platform(terse=True)}"),
    ]
    checks += [check async for check in _examined(cli)]
    wrong = sum(c.status == "wrong" for c in checks)
    shown_keys = ("name", "status", "detail", "hint")
    facts = {"ok": not wrong, "checks": [{key: getattr(c, key) for key in shown_keys} for c in checks]}
    cli.out.one(facts, lambda: _page(checks, wrong), id="ok" if not wrong else "wrong", plain=dict)
    return Exit.FAILURE if wrong else Exit.OK


async def _examined(cli: Cli) -> AsyncIterator[Check]:
    cli.loads_app = False
    try:
        elsewhere = cli.settings["database_url"]
        if check := _app(cli):
            yield check
    except PerdureError as error:
        yield Check("settings", "wrong", error.message, error.hint)
        return
    url = shown(BY_NAME["database_url"], cli.settings["database_url"])
    if cli.flags.app is None and cli.settings["database_url"] != elsewhere:
        place = shown(BY_NAME["database_url"], elsewhere)
        hint = f"set PERDURE_DATABASE_URL, or give --app {shlex.quote(cli.settings['app'])} to every command"
        yield Check(
            "settings", "warning", f"{cli.settings['app']} uses {url}; commands without handlers use {place}", hint
        )
    if missing := cli.missing_file():
        hint = "perdure dev, worker start or jobs start create it"
        yield Check("database", "warning", f"there is no file {missing} yet", hint)
        return
    async with cli.unopened() as client:
        async for check in diagnose(client):
            yield _shown(cli, check, url)


def _app(cli: Cli) -> Check | None:
    """Whether the App loads and has handlers; None where no App is named. The other checks do not need it. Raises ConfigError."""
    try:
        own = cli.own_app
    except AppNotFound as error:
        cli.loads_app = False  # the database is looked at without it
        return Check("app", "wrong", error.message, error.hint)
    if own is None:
        return None
    if names := ", ".join(sorted(h.name for h in own.registry)):
        return Check("app", "ok", f"{cli.settings['app']}: {names}")
    return Check("app", "wrong", f"{cli.settings['app']} has no handlers", "a handler is a function under @app.job")


def _shown(cli: Cli, check: Check, url: str) -> Check:
    """A check with the URL of the database, and its command on the same database as a part of the hint."""
    if check.name == "database" and check.status == "ok":
        return replace(check, detail=check.detail.replace("it", url, 1))
    if check.command is None:
        return check
    command = cli.next(check.command.removeprefix("perdure "))
    return replace(check, hint=f"{check.hint}: {command}" if check.hint else command, command=None)


def _page(checks: list[Check], wrong: int) -> Text:
    text = Text()
    for check in checks:
        icon, style = ICONS[check.status]
        text.append(f"{icon} ", style)
        text.append(f"{check.name:<10}", "bold" if check.status != "ok" else None)
        text.append(clean_text(check.detail) + "\n")
        if check.hint and check.status != "ok":
            text.append(f"            {clean_text(check.hint)}\n", "dim")
    text.append("\n")
    warnings = sum(c.status == "warning" for c in checks)
    if wrong:
        text.append(f"{wrong} thing{'s' * (wrong > 1)} wrong", "red")
    elif any(c.name == "database" and c.status == "warning" for c in checks):
        text.append("there is no database yet, so it and its jobs were not looked at", "yellow")
    elif warnings:
        text.append(f"nothing is wrong; {warnings} warning{'s' * (warnings > 1)}", "yellow")
    else:
        text.append("no problems", "green")
    return text
