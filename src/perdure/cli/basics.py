"""Small commands: version, completion, demo."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

from perdure import __version__
from perdure.cli.completion_scripts import SCRIPTS
from perdure.cli.context import Cli
from perdure.cli.options import command, group
from perdure.cli.usage_error import Usage

app = group("Small commands.", "perdure version")


@command(app, "version", example="perdure version --json")
def version(cli: Cli) -> None:
    """Print the version of perdure, and of the Python it runs on."""
    from rich.text import Text

    facts = {"version": __version__, "python": platform.python_version(), "platform": platform.platform(terse=True)}
    text = f"perdure {__version__} (Python {facts['python']}, {facts['platform']})"
    cli.out.one(facts, lambda: Text(text), id=__version__, plain=dict)


@command(
    app,
    "completion",
    example="""\
perdure completion bash >> ~/.bashrc
perdure completion zsh > ~/.zfunc/_perdure
perdure completion fish > ~/.config/fish/completions/perdure.fish""",
)
def completion(cli: Cli, shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish")]) -> None:
    """Print a script that completes commands, options and their values in your shell, ids and kinds from the database too."""
    del cli
    if shell not in SCRIPTS:
        raise Usage(f"there is no completion for '{shell}'", hint=f"known: {', '.join(SCRIPTS)}")
    print(SCRIPTS[shell], end="")


@command(app, "demo", example="perdure demo\nperdure demo ./my-project --auto-approve\nperdure demo --tool codex")
def demo(
    cli: Cli,
    repository: Annotated[
        str | None,
        typer.Argument(metavar="REPOSITORY", help="A git repository to work on; default: the current one, or a sample"),
    ] = None,
    directory: Annotated[
        str | None,
        typer.Option("--directory", metavar="DIR", help="Where to keep what it writes; default: a new temporary one"),
    ] = None,
    tool: Annotated[
        str | None,
        typer.Option(
            "--tool", metavar="TOOL", help="With a real coding CLI and its key: codex, claude, gemini or auto"
        ),
    ] = None,
    auto_approve: Annotated[
        bool, typer.Option("--auto-approve", help="Approve without asking (also with --yes)")
    ] = False,
) -> int:
    """Watch a job lose its worker, wait for your approval and finish: 15 seconds."""
    approves = auto_approve or cli.flags.yes
    if tool is not None:
        from perdure.cli.demo_tool import run_tool_demo

        return run_tool_demo(tool, repository, directory=directory, auto_approve=approves)
    from perdure.cli.demo import run_demo

    return run_demo(repository, directory=directory, auto_approve=approves)
