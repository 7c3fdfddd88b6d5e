"""`perdure help`: a command's help page, or what an error or a fault means and what to do about it. No network is used."""

from __future__ import annotations

import difflib
import inspect
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

import typer

from perdure.cli.context import Cli
from perdure.cli.options import command, group
from perdure.cli.usage_error import Usage

T = TypeVar("T")

app = group("Explain a command, or an error or fault by its code.", "perdure help")


@command(app, "help", example="perdure help jobs ls\nperdure help job-not-found\nperdure help queue-missing")
def help(
    cli: Cli,
    topic: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="A command, or a code; default: all commands"),
    ] = None,
) -> None:
    """Explain a command, or an error or fault by its code.

    Every error names its page at the end of its message, `[perdure help CODE]`, and as `help` where errors are JSON. Codes of
    faults are what `perdure fsck` prints.
    """
    from rich.text import Text

    words = topic or []
    if found := _command_page(words):
        page = {"command": " ".join(["perdure", *words]), "help": found}
        cli.out.one(page, lambda: Text(found), id=page["command"], plain=dict)
        return
    code = words[0] if len(words) == 1 else ""
    if facts := _error(code):
        cli.out.one(facts, lambda: _error_page(facts), id=code, plain=dict)
    elif fault := _fault(code):
        cli.out.one(fault, lambda: _fault_page(fault), id=code, plain=dict)
    else:
        raise Usage(f"there is no command and no code '{' '.join(words)}'", hint=_nearest(words))


def _command_page(words: list[str]) -> str | None:
    """The help of the command at this path; None if there is none."""
    from perdure.cli.main import root

    node: Any = root()
    context = typer.Context(node, info_name="perdure")
    for word in words:
        node = node.get_command(context, word) if hasattr(node, "list_commands") else None
        if node is None:
            return None
        context = typer.Context(node, info_name=word, parent=context)
    text: str = node.get_help(context)
    return text.rstrip("\n")


def _error(code: str) -> dict[str, Any] | None:
    """What is known of the error with this code; None if there is none."""
    from perdure.chaos import errors as _chaos  # noqa: F401  # a class is known once its module is loaded
    from perdure.cli.error_help import ADVICE
    from perdure.cli.errors import exit_code_of
    from perdure.model.errors import PerdureError
    from perdure.operations import errors as _operations  # noqa: F401  # likewise

    cls = next((c for c in _family(PerdureError) if vars(c).get("code") == code), None)
    if cls is None or code not in ADVICE:
        return None
    means = " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split())
    exit_code = int(exit_code_of(cls))
    return {"code": code, "advice": ADVICE[code], "class": cls.__name__, "means": means, "exit_code": exit_code}


def _family(cls: type[T]) -> Iterator[type[T]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _family(child)


def _error_page(facts: dict[str, Any]) -> Any:
    from rich.text import Text

    lines = [
        (f"{facts['code']} (exit code {facts['exit_code']}, {facts['class']} in Python)", "bold"),
        ("\n\n" + textwrap.fill(facts["means"], 100), ""),
        ("\n\n" + textwrap.fill(facts["advice"], 100), ""),
    ]
    return Text.assemble(*lines)


def _fault(code: str) -> dict[str, Any] | None:
    """What is known of the fault that `perdure fsck` calls so; None if it knows none."""
    from perdure.model.fsck_faults import FAULTS, NOTES

    kind = FAULTS.get(code)
    if kind is None:
        return None
    return {
        "code": code,
        "means": kind.says,
        "note": code in NOTES,
        "repair": kind.repair,
        "advice": kind.advice or None,
    }


def _fault_page(facts: dict[str, Any]) -> Any:
    from rich.text import Text

    what = "note" if facts["note"] else "fault"
    repair, advice = facts["repair"], facts["advice"]
    does = f"`perdure fsck --fix` repairs it: {repair}." if repair else "`perdure fsck --fix` does not repair it."
    if advice:
        does += f" For what is not repaired: {advice[0].lower()}{advice[1:]}" if repair else f" {advice}"
    means = facts["means"][0].upper() + facts["means"][1:] + "."
    return Text.assemble(
        (f"{facts['code']} (a {what} that perdure fsck finds)", "bold"),
        "\n\n" + textwrap.fill(means, 100),
        "\n\n" + textwrap.fill(does, 100),
    )


def _nearest(words: list[str]) -> str:
    from perdure.cli.error_help import ADVICE
    from perdure.model.fsck_faults import FAULTS

    near = difflib.get_close_matches(" ".join(words), [*ADVICE, *FAULTS], 1)
    guess = f"did you mean {near[0]}? " if near else ""
    return f"{guess}`perdure help` lists the commands, `perdure help CODE` explains an error or a fault"
