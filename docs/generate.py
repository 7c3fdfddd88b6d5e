"""Regenerate the parts of the docs that follow from the code: `make docs`. With --check, say whether they are up to date.

A generated part stands between `<!-- generated: name -->` and `<!-- end -->` in a page; the rest of the page is written by hand.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perdure.app import App
from perdure.cli import errors as doors
from perdure.cli import usage
from perdure.cli.main import root
from perdure.cli.options import GLOBALS
from perdure.config import SETTINGS, shown
from perdure.model import errors
from perdure.model.checking import FAULTS
from perdure.model.errors import PerdureError
from perdure.model.events import EVENT_TYPES, REPLAY_TYPES, RESERVED_TYPES, EventClass
from perdure.model.states import CLAIMABLE, LEASED, TERMINAL, TRANSITIONS, Status, transition_event
from perdure.runtime.client.client import Client
from perdure.runtime.context import JobContext
from perdure.runtime.handle import Handle

DOCS = Path(__file__).parent
RULE = "|---"
PART = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def states_diagram() -> Iterator[str]:
    """The state machine as Mermaid draws it."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    [*] --> PENDING"
    for old, targets in TRANSITIONS.items():
        for new in (s for s in Status if s in targets):
            yield f"    {old} --> {new}"
    for status in Status:
        if status in TERMINAL:
            yield f"    {status} --> [*]"
    yield "```"


def states_table() -> Iterator[str]:
    """Every transition with the event it writes."""
    yield from row("From", "To", "Event")
    yield RULE * 3 + "|"
    yield from row("(enqueue)", "PENDING", f"`{transition_event(None, Status.PENDING)}`")
    for old, targets in TRANSITIONS.items():
        for new in (s for s in Status if s in targets):
            yield from row(old, new, f"`{transition_event(old, new)}`")


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


ADVICE = {
    "malformed-setting": "Correct the setting that is named. `perdure config ls` shows where each value came from.",
    "malformed-url": "Write `memory:`, `sqlite:///relative/path.db`, `sqlite:////absolute/path.db` or `postgresql://...`.",
    "extra-missing": "Install it: `pip install 'perdure[metrics]'` or `'perdure[otel]'`, or switch off what asks for it.",
    "port-taken": "Choose another `metrics_port`; 0 takes any that is free. See [observability](observability.md).",
    "store-error": "Read the message; it carries the database's own words.",
    "store-unreachable": "Check that the database runs and that the URL and the rights are right. Trying again may help.",
    "schema-missing": "Run `perdure db migrate`.",
    "foreign-database": "Name perdure's own database. To keep its tables beside others: `perdure db migrate`.",
    "schema-outdated": "Run `perdure db migrate`.",
    "schema-too-new": "Upgrade perdure on this machine.",
    "migration-changed": "Install the perdure that made this schema, or restore the schema; never edit a migration.",
    "invalid-input": "The message names the argument and what it must look like.",
    "not-json": "Pass JSON values, dataclasses or pydantic models. Clients, files and secrets do not belong in a payload.",
    "too-large": "Store large data elsewhere and pass its address.",
    "invalid-priority": "Give a whole number from 1 to 9.",
    "negative-delay": "Leave the delay out to run now.",
    "unsupported-transaction": "Pass the connection, cursor or session on which your transaction runs; "
    "[transactions](transactions.md) lists the kinds.",
    "no-transaction": "Begin a transaction first, or leave `tx=` out to enqueue at once.",
    "other-database": "Give the App the URL of the database that your transaction is in.",
    "not-found": "Check the id and the database.",
    "job-not-found": "`perdure jobs ls` shows the ids; `perdure config ls` shows which database was asked.",
    "approval-not-found": "`perdure approvals ls` shows those that are pending.",
    "worker-not-found": "`perdure worker status` shows the ids.",
    "step-not-found": "`perdure jobs steps ID` shows the steps; without a step a fork goes on where the job ended.",
    "ambiguous-id": "Type more digits, or the full id.",
    "conflict": "Read the job and decide anew.",
    "illegal-transition": "A finished job stays as it is: `perdure jobs rerun` makes a new one. See [states](states.md).",
    "version-mismatch": "Read the events after your version and try again.",
    "job-leased": "Wait until no worker holds the job, or let its handler write the event with `ctx.emit`.",
    "job-pruned": "Start the job anew with its payload, if you have it: `perdure jobs export` or `db prune --export` may have.",
    "idempotency-conflict": "Use another key for another payload, or send the same payload again.",
    "already-decided": "Nothing to do: the first decision stands.",
    "approval-expired": "Nothing to do: the job has gone on without the answer, or failed, as it asked for.",
    "approval-changed": "Look at the approval again and decide on what it says now.",
    "real-jobs": "Give it a database of its own, or allow it: `perdure chaos --allow-real-jobs`. See [chaos](chaos.md).",
    "not-permitted": "Ask somebody who may.",
    "wrong-token": "Ask for a fresh link: a newer token replaces an older one.",
    "not-assigned": "Decide as one of the assignees, or with the link's token.",
    "handler-error": "Read the message; it names the handler.",
    "unknown-handler": "Check the name, and that the module of the handler is imported. For one that lives elsewhere: "
    "`enqueue(..., elsewhere=True)`.",
    "duplicate-handler": 'Give one of them another name: `@app.job(name="...")`.',
    "step-changed": "The code between attempts changed what it passes to a recorded step. Give the step another name, or call "
    'it with `ctx.options(on_change="keep")` or `"rerun"`. See [steps and tools](steps-and-tools.md).',
    "unknown-outcome": "Find out whether the side effect happened; then `perdure jobs rerun`, if it must be done again.",
    "lease-lost": "Nothing to do: another worker has the job, and nothing this one tried was written.",
    "job-error": "Catch one of the three below it.",
    "job-failed": "`error.job` is the record, `error.kind` says why. `perdure jobs rerun` tries again as a new job.",
    "job-cancelled": "`error.job` is the record, with who cancelled it and why.",
    "wait-timeout": "Wait again: a timeout does not touch the job.",
    "verdict": "Catch or raise one of the four below it.",
    "retry": "Raise it in a handler. Seen outside, the job has used up its retries.",
    "fatal": "Raise it in a handler, as `Fail`. Seen outside, as `error_kind`, the job failed for good.",
    "snooze": "Raise it in a handler to run again later at no cost.",
    "denied": 'Catch it in a handler that asked with `on_deny="resume"`. Else the job is FAILED.',
    "error": "Catch it to catch everything that perdure raises.",
}


def error_pages() -> Iterator[str]:
    """One section per error: what it says, what to do, where it comes from."""
    described = [cls for cls in classes(errors) if "code" in vars(cls)]
    local = [cls for cls in (*classes(usage), *classes(doors)) if "code" in vars(cls)]
    yield from row("Exit code", "Errors")
    yield RULE * 2 + "|"
    for code in sorted({exit_code(cls) for cls in described + local}):
        names = [f"[{c.code}](#{c.code})" for c in described + local if exit_code(c) == code]
        yield from row(str(code), ", ".join(names))
    yield ""
    for cls in described:
        base = cls.__bases__[0]
        yield from (f"## {cls.code}", "", one_line(cls.__doc__), "")
        if cls.code in ADVICE:
            yield from (ADVICE[cls.code], "")
        a = "an" if base.__name__[0] in "AEIOU" else "a"
        facts = [f"`{cls.__name__}`, {a} `{base.__name__}`", f"exit code {exit_code(cls)}"]
        if raisers := raised_by(cls.__name__):
            facts.append("raised by " + ", ".join(f"`{name}`" for name in raisers))
        yield from ("; ".join(facts) + ".", "")
    yield from ("# Errors of the command line alone", "")
    for cls in local:
        yield from (f"## {cls.code}", "", one_line(cls.__doc__), "")
        yield from (f"Exit code {exit_code(cls)}.", "")


def classes(module: Any) -> list[type[PerdureError]]:
    """The error classes a module defines, in its order."""
    found = [c for c in vars(module).values() if inspect.isclass(c) and issubclass(c, PerdureError)]
    return [c for c in found if c.__module__ == module.__name__]


def raised_by(name: str) -> list[str]:
    """The public calls whose docstring names an error."""
    found = []
    roles = [role for role in Client.__mro__ if role is not object]  # its rooms: all of them are the client to a reader
    for title, owner in (
        ("App", App),
        *(("Client", role) for role in roles),
        ("Handle", Handle),
        ("JobContext", JobContext),
    ):
        for attribute, value in vars(owner).items():
            public = not attribute.startswith("_") and callable(value)
            if public and re.search(rf"\b{name}\b", inspect.getdoc(value) or ""):
                found.append(f"{title}.{attribute}")
    return found


def exit_code(cls: type[PerdureError]) -> int:
    """The exit code that an error of this class ends the command line with."""
    return int(next(doors.EXIT_CODES[c] for c in cls.__mro__ if c in doors.EXIT_CODES))


def commands() -> Iterator[str]:
    """The whole command tree, with every option and example."""
    yield from ("## Global options", "", "They may stand before or after the command.", "")
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
        own = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
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
    "errors": error_pages,
    "faults": faults,
    "commands": commands,
}


def regenerated(text: str) -> str:
    """A page with its generated parts as they should be."""

    def part(match: re.Match[str]) -> str:
        body = "\n".join(PARTS[match[2]]()).strip("\n")
        return f"{match[1]}\n{body}\n\n{match[4]}"

    return PART.sub(part, text)


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check compare them; 0 if they are up to date."""
    check = arguments == ["--check"]
    if arguments and not check:
        print("usage: python docs/generate.py [--check]", file=sys.stderr)
        return 2
    stale = 0
    for page in sorted(DOCS.rglob("*.md")):
        old = page.read_text(encoding="utf-8")
        new = regenerated(old)
        if old == new:
            continue
        if check:
            stale = 1
            name = str(page.relative_to(DOCS.parent))
            sys.stdout.writelines(
                difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, "as generated")
            )
        else:
            page.write_text(new, encoding="utf-8")
            print(f"wrote {page.relative_to(DOCS.parent)}")
    if stale:
        print("the reference pages are out of date: make docs", file=sys.stderr)
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
