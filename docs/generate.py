"""Regenerate the parts of the docs that follow from the code: `make docs`. With --check, say whether they are up to date.

A generated part stands between `<!-- generated: name -->` and `<!-- end -->` in a page; the rest of the page is written by hand.
The pages in `errors/`, one for each code, and those in `reference/`, the Python reference, are generated as a whole.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import python_reference

from perdure.app import App
from perdure.chaos import errors as chaos
from perdure.cli import errors as command_line
from perdure.cli import usage_error as usage
from perdure.cli.error_help import ADVICE
from perdure.cli.errors import exit_code_of
from perdure.cli.main import root
from perdure.cli.options import GLOBALS
from perdure.config import SETTINGS, shown
from perdure.model import errors
from perdure.model.errors import PerdureError
from perdure.model.events import EVENT_TYPES, REPLAY_TYPES, RESERVED_TYPES, EventClass
from perdure.model.fsck_faults import FAULTS
from perdure.model.states import CAUSES, CLAIMABLE, LEASED, TERMINAL, TRANSITIONS, Status, transition_event
from perdure.operations import errors as operations
from perdure.runtime.client.approvals import Approvals
from perdure.runtime.client.client import Client
from perdure.runtime.client.database import Database
from perdure.runtime.client.jobs import Jobs
from perdure.runtime.client.limits import Limits
from perdure.runtime.client.memories import Memories
from perdure.runtime.client.queues import Queues
from perdure.runtime.client.schedules import Schedules
from perdure.runtime.client.workers import Workers
from perdure.runtime.context.context import JobContext
from perdure.runtime.handle import Handle

DOCS = Path(__file__).parent
RULE = "|---"
MORE = {
    "port-taken": "observability",
    "unsupported-transaction": "transactions",
    "illegal-transition": "states",
    "real-jobs": "chaos",
    "step-changed": "steps-and-tools",
    "store-error": "operations",
    "child-failed": "children",
    "wait-circle": "children",
    "invalid-budget": "budgets",
    "empty-query": "memory",
    "unknown-scope": "memory",
    "text-too-long": "memory",
    "mixed-dimensions": "memory",
    "embedder-unavailable": "memory",
    "invalid-export": "replay",
    "replay-diverged": "replay",
    "budget-exceeded": "budgets",
}
"""Pages that say more about an error. Its advice does without them: who has only installed perdure has no pages."""
WHOLE = ("errors", "reference")
"""Directories in which every page is generated."""
PART = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def states_diagram() -> Iterator[str]:
    """The state machine in Mermaid's language; each arrow says what causes it."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    [*] --> PENDING : enqueue"
    for old, targets in TRANSITIONS.items():
        for new in (s for s in Status if s in targets):
            yield f"    {old} --> {new} : {CAUSES[old, new]}"
    for status in Status:
        if status in TERMINAL:
            yield f"    {status} --> [*]"
    yield "```"


def states_table() -> Iterator[str]:
    """Every transition with its cause and the event it writes."""
    yield from row("From", "To", "Cause", "Event")
    yield RULE * 4 + "|"
    yield from row("", "PENDING", "enqueue", f"`{transition_event(None, Status.PENDING)}`")
    for old, targets in TRANSITIONS.items():
        for new in (s for s in Status if s in targets):
            yield from row(old, new, CAUSES[old, new], f"`{transition_event(old, new)}`")


def states_kinds() -> Iterator[str]:
    """Which states are leased, claimable, terminal."""
    yield from row("Group", "States", "Means")
    yield RULE * 3 + "|"
    groups = (
        ("leased", LEASED, "a worker holds the job; exactly these have a row in `job_claims`"),
        ("claimable", CLAIMABLE, "no worker; a row in `job_queue` says when it may start or wake by itself"),
        ("terminal", TERMINAL, "nothing leaves them; the job is a record"),
    )
    for name, members, means in groups:
        yield from row(name, ", ".join(s for s in Status if s in members), means)


def events() -> Iterator[str]:
    """Every event type, by class."""
    says = {
        EventClass.LIFECYCLE: "One per transition, written by the database's trigger.",
        EventClass.STEP: "What the handler did.",
        EventClass.COORDINATION: "Waits, questions and requests from outside.",
        EventClass.RECORDED: "State the handler asked to keep.",
        EventClass.TRACE: "For people only: an export may drop them. Types of your own are trace as well.",
    }
    for cls in EventClass:
        yield from (f"## {cls.value.capitalize()}", "", says[cls], "")
        yield from row("Type", "Says", "Payload always has", "A later attempt reads it", "Only perdure writes it")
        yield RULE * 5 + "|"
        for name, type in EVENT_TYPES.items():
            if type.cls is cls:
                keys = ", ".join(f"`{key}`" for key in type.keys)
                reads, reserved = ("yes" if name in names else "" for names in (REPLAY_TYPES, RESERVED_TYPES))
                yield from row(f"`{name}`", type.says, keys, reads, reserved or "no")
        yield ""


def settings() -> Iterator[str]:
    """Every setting."""
    yield from row("Setting (TOML key)", "Environment variable", "Default", "What it is")
    yield RULE * 4 + "|"
    for setting in SETTINGS:
        default = shown(setting, setting.default)
        yield from row(f"`{setting.name}`", f"`{setting.variable}`", f"`{default}`" if default else "", setting.help)


def faults() -> Iterator[str]:
    """Every fault that fsck knows."""
    yield from row("Code", "What it means", "What `--fix` does")
    yield RULE * 3 + "|"
    for code, kind in FAULTS.items():
        yield from row(f"`{code}`", kind.says, kind.repair or "nothing")
    yield from ("", "What you can do about those that are not repaired:", "")
    for advice in dict.fromkeys(kind.advice for kind in FAULTS.values() if kind.advice):
        codes = [f"`{code}`" for code, kind in FAULTS.items() if kind.advice == advice]
        yield f"- {', '.join(codes)}: {advice[0].lower()}{advice[1:]}"


def errors_table() -> Iterator[str]:
    """Every error, by exit code."""
    yield from row("Exit code", "Error", "What it means")
    yield RULE * 3 + "|"
    for cls in sorted(described(), key=exit_code_of):
        yield from row(str(int(exit_code_of(cls))), f"[{cls.code}](errors/{cls.code}.md)", one_line(cls.__doc__))


def error_pages() -> Iterator[tuple[Path, str]]:
    """One page per error: what it says, what to do, where it comes from."""
    for cls in described():
        advice = ADVICE[cls.code]
        if more := MORE.get(cls.code):
            advice += f" See [{more.replace('-', ' ')}](../{more}.md)."
        base = cls.__bases__[0].__name__
        of_python = cls.__module__ == errors.__name__
        known = (
            f"`perdure.{cls.__name__}`, {'an' if base[0] in 'AEIOU' else 'a'} `{base}`"
            if of_python
            else "Of the command line alone"
        )
        facts = [known, f"exit code {int(exit_code_of(cls))}"]
        if raisers := raised_by(cls.__name__):
            facts.append("raised by " + ", ".join(f"`{name}`" for name in raisers))
        lines = (
            f"# {cls.code}",
            one_line(cls.__doc__),
            "## What to do",
            advice,
            "; ".join(facts) + ".",
            "[All errors](../errors.md)",
        )
        yield DOCS / "errors" / f"{cls.code}.md", "\n\n".join(lines) + "\n"


def described() -> list[type[PerdureError]]:
    """The errors that have a code of their own; those of the command line alone come last."""
    found = [*classes(errors), *classes(operations), *classes(chaos), *classes(usage), *classes(command_line)]
    return [cls for cls in found if "code" in vars(cls)]


def classes(module: Any) -> list[type[PerdureError]]:
    """The error classes a module defines, in its order."""
    found = [c for c in vars(module).values() if inspect.isclass(c) and issubclass(c, PerdureError)]
    return [c for c in found if c.__module__ == module.__name__]


def raised_by(name: str) -> list[str]:
    """The public calls whose docstring names an error."""
    found = []
    parts = {
        "jobs": Jobs,
        "approvals": Approvals,
        "limits": Limits,
        "schedules": Schedules,
        "queues": Queues,
        "memory": Memories,
        "workers": Workers,
        "database": Database,
    }
    for title, owner in (
        ("App", App),
        ("Client", Client),
        *((f"Client.{name}", base) for name, part in parts.items() for base in part.__mro__ if base is not object),
        ("Handle", Handle),
        *(("JobContext", base) for base in JobContext.__mro__ if base is not object),
    ):
        for attribute, value in vars(owner).items():
            public = not attribute.startswith("_") and callable(value)
            if public and re.search(rf"\b{name}\b", inspect.getdoc(value) or ""):
                found.append(f"{title}.{attribute}")
    return found


def commands() -> Iterator[str]:
    """The whole command tree, with every option and example."""
    yield from (
        "## Global options",
        "",
        "Every command takes these, before or after its name; below, each command lists only its own.",
        "",
    )
    yield from row("Option", "What it does")
    yield RULE * 2 + "|"
    for option in GLOBALS:
        names = ", ".join(f"`{name}`" for name in option.names)
        yield from row(names + (f" `{option.metavar}`" if option.metavar else ""), option.help)
    yield ""
    yield from command_group(root(), "perdure", 2)


def command_group(group: Any, path: str, level: int) -> Iterator[str]:
    """The commands of a group."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if command.hidden:
            continue
        yield from (f"{'#' * level} {path} {name}", "")
        yield from (
            paragraph(text) + "\n" for text in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")) if text
        )
        if hasattr(command, "list_commands"):
            yield from command_group(command, f"{path} {name}", level + 1)
            continue
        shared = {name for option in GLOBALS for name in option.names}
        own = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
        own = [p for p in own if shared.isdisjoint(p.opts)]
        arguments = [p for p in own if p.param_type_name == "argument"]
        usage = " ".join(argument_word(p) for p in arguments)
        yield from ("```text", f"{path} {name} [OPTIONS] {usage}".rstrip(), "```", "")
        if explained := [p for p in arguments if p.help]:
            yield from row("Argument", "What it is")
            yield RULE * 2 + "|"
            for argument in explained:
                yield from row(f"`{argument_word(argument)}`", paragraph(argument.help))
            yield ""
        if shown_options := [p for p in own if p.param_type_name == "option"]:
            yield from options(shown_options)
        if command.epilog:
            yield from ("```sh", inspect.cleandoc(command.epilog), "```", "")


def options(params: Any) -> Iterator[str]:
    """A table of options."""
    yield from row("Option", "What it does")
    yield RULE * 2 + "|"
    for param in params:
        names = ", ".join(f"`{name}`" for name in [*param.opts, *param.secondary_opts])
        value = "" if param.is_flag or param.count else f" `{param.metavar or 'TEXT'}`"
        yield from row(names + value, paragraph(param.help or ""))
    yield ""


def argument_word(param: Any) -> str:
    """`ID`, `[ID]` or `[ID...]`."""
    word = (param.metavar or param.name).upper() + ("..." if param.nargs != 1 else "")
    return word if param.required else f"[{word}]"


def row(*cells: str) -> Iterator[str]:
    """One line of a table."""
    yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def one_line(text: str | None) -> str:
    """The first paragraph of a docstring on one line."""
    return paragraph(inspect.cleandoc(text or "").split("\n\n", 1)[0])


def paragraph(text: str) -> str:
    """Text on one line, without what Markdown would take for a tag."""
    return " ".join(text.split()).replace("<", "&lt;")


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "states_diagram": states_diagram,
    "states_table": states_table,
    "states_kinds": states_kinds,
    "events": events,
    "settings": settings,
    "errors": errors_table,
    "faults": faults,
    "commands": commands,
}


def regenerated(text: str) -> str:
    """A page with its generated parts as they should be."""

    def part(match: re.Match[str]) -> str:
        body = "\n".join(PARTS[match[2]]()).strip("\n")
        return f"{match[1]}\n{body}\n\n{match[4]}"

    return PART.sub(part, text)


def pages() -> Iterator[tuple[Path, str, str]]:
    """Every page as it is and as it should be; one that does not exist, or should not, is empty."""
    whole = dict(error_pages()) | {DOCS / "reference" / name: text for name, text in python_reference.pages()}
    for page in sorted({*DOCS.rglob("*.md"), *whole}):
        old = page.read_text(encoding="utf-8") if page.exists() else ""
        yield page, old, whole.get(page, "") if page.parent != DOCS and page.parent.name in WHOLE else regenerated(old)


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check compare them; 0 if they are up to date."""
    check = arguments == ["--check"]
    if arguments and not check:
        print("usage: python docs/generate.py [--check]", file=sys.stderr)
        return 2
    stale = 0
    for page, old, new in pages():
        if old == new:
            continue
        name = str(page.relative_to(DOCS.parent))
        if check:
            stale = 1
            sys.stdout.writelines(
                difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, "as generated")
            )
        elif new:
            page.parent.mkdir(exist_ok=True)
            page.write_text(new, encoding="utf-8")
            print(f"wrote {name}")
        else:
            page.unlink()
            print(f"removed {name}")
    if stale:
        print("the reference pages are out of date: make docs", file=sys.stderr)
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
