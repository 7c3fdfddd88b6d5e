"""Completion: what may come next on a command line, also ids, kinds and queues from the database.

The scripts of `shells` call the program with `_PERDURE_COMPLETE` set. It answers a value per line (zsh and fish: with a word on
what it is), or with exit code 3 where a file is wanted. It prints nothing on any error.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.cli.help import ALIASES, first_sentence
from perdure.cli.options import GLOBALS
from perdure.operations.approvals import list_approvals
from perdure.operations.jobs import list_jobs
from perdure.operations.selection import JobSelection
from perdure.operations.workers import list_workers

if TYPE_CHECKING:
    from perdure import Client

FILES = 3
"""The exit code that asks the shell to complete a file."""

BUDGET = 0.5
"""Seconds that reading the database may take."""

LATEST = 50

# Text that a shell takes literally: no data from the database can become a command.
_SAFE = re.compile(r"[\w.,:/=@%+-]+", re.ASCII)

Found = tuple[str, str]
"""A value, and what it is."""


class WantsFile(Exception):
    """A file name is to be completed: the shell does that."""


@dataclass(slots=True)
class Place:
    """The place on the command line that is to be completed: the command so far, the option that needs a value, and the values
    of options."""

    root: Any
    node: Any
    path: list[str]
    option: Any = None
    arguments: int = 0
    only_arguments: bool = False
    given: dict[str, str] | None = None


def answer(root: Any, shell: str, args: list[str]) -> int:
    """Print what may come next under the root of all commands; return the exit code."""
    try:
        words = _split(args[0]) if shell == "bash" else args or [""]
        found = list(candidates(root, words))
    except WantsFile:
        return FILES
    except Exception:  # noqa: BLE001  an error must not be printed into a command line
        return 0
    # bash counts what follows one of these as a word of its own
    done = max(words[-1].rfind(mark) for mark in "=:") + 1 if shell == "bash" else 0
    for value, what in found:
        if shell == "bash":
            print(value[done:])
        elif shell == "zsh":
            print(value.replace(":", "\\:") + (f":{what}" if what else ""))
        else:
            print(f"{value}\t{what}")
    return 0


def candidates(root: Any, words: Sequence[str]) -> Iterator[Found]:
    """What may stand in place of the last of these words (those after the program's name). Raises WantsFile."""
    place = _walk(root, words[:-1])
    if place is None:
        return
    word = words[-1]
    name, equals, start = word.partition("=")
    if place.option is None and equals and word.startswith("--"):
        option = _options(place).get(name)
        if option is not None:
            yield from ((f"{name}={value}", what) for value, what in _values(place, option, start))
        return
    if place.option is not None:
        yield from _values(place, place.option, word)
    elif word.startswith("-") and not place.only_arguments:
        hidden = {n for p in place.node.params for n in p.opts if getattr(p, "hidden", False)}
        yield from _starting(word, ((n, _help(p)) for n, p in _options(place).items() if n not in hidden))
    elif hasattr(place.node, "list_commands"):
        yield from _starting(word, place.node.summaries(None))
    else:
        arguments = [p for p in place.node.params if p.param_type_name == "argument"]
        if arguments and (place.arguments < len(arguments) or arguments[-1].nargs != 1):
            yield from _values(place, arguments[min(place.arguments, len(arguments) - 1)], word)


def _walk(root: Any, words: Sequence[str]) -> Place | None:
    """The place after these words; None if there is no such command."""
    place = Place(root, root, [], given={})
    assert place.given is not None
    for word in words:
        name, equals, value = word.partition("=")
        option = _options(place).get(name)
        if place.option is not None:
            place.given[place.option.name] = word
            place.option = None
        elif word == "--":
            place.only_arguments = True
        elif word.startswith("-") and len(word) > 1 and not place.only_arguments:
            if option is not None and _takes_value(option):
                if equals:
                    place.given[option.name] = value
                elif option.metavar != "[DURATION]":
                    place.option = option
        elif hasattr(place.node, "list_commands"):
            node = place.node.get_command(None, word)
            if node is None:
                return None
            place.node = node
            place.path.append(ALIASES.get(word, word))
        else:
            place.arguments += 1
    return place


@dataclass(frozen=True, slots=True)
class _Shared:
    """An option of every command, where it stands before the command."""

    name: str
    metavar: str | None
    help: str


def _options(place: Place) -> dict[str, Any]:
    """The options that may stand here, by each of their names."""
    own = {n: p for p in place.node.params if p.param_type_name == "option" for n in (*p.opts, *p.secondary_opts)}
    return own or {n: _Shared(o.field, o.metavar, o.help) for o in GLOBALS for n in o.names}


def _takes_value(option: Any) -> bool:
    if isinstance(option, _Shared):
        return option.metavar is not None
    return not (option.is_flag or option.count)


def _help(option: Any) -> str:
    return first_sentence(option.help)


def _starting(start: str, found: Iterable[Found]) -> Iterator[Found]:
    for value, what in found:
        if value.startswith(start) and _SAFE.fullmatch(value):
            yield value, what


# -- values ------------------------------------------------------------------------------------------------------------


def _values(place: Place, param: Any, start: str) -> Iterator[Found]:
    """What a parameter may be, found by its placeholder in the help: STATUS, ID, a|b|c, ..."""
    metavar = param.metavar or ""
    if metavar in ("FILE", "DIR", "REPOSITORY"):
        raise WantsFile
    known = _choices(place, param, metavar) or _from_database(place, param, metavar)
    before, comma, last = start.rpartition(",")
    if not comma or metavar not in _LISTS:
        yield from _starting(start, known)
        return
    taken = set(before.split(","))
    for value, what in _starting(last, known):
        if value not in taken:
            yield f"{before},{value}", what


_LISTS = frozenset({"STATUS", "KIND", "QUEUE", "A,B", "TYPE", "PARTS"})


def _choices(place: Place, param: Any, metavar: str) -> list[Found]:
    match metavar:
        case "STATUS":
            return [(word.lower(), "") for word in _statuses(place)]
        case "TYPE":
            from perdure.model.events import EVENT_TYPES

            return [(name, type.says) for name, type in EVENT_TYPES.items()]
        case "PARTS" if place.path[-1] == "diff":
            from perdure.cli.diff_page import PARTS as COMPARED

            return [(part, "") for part in COMPARED]
        case "PARTS":
            from perdure.cli.job_page import PARTS

            return [(part, "") for part in (*PARTS, "all")]
        case "SHELL":
            from perdure.cli.completion_scripts import SCRIPTS

            return [(name, "") for name in SCRIPTS]
        case "TOPIC":
            from perdure.cli.error_help import ADVICE
            from perdure.model.fsck_faults import FAULTS

            codes = [*((code, "an error") for code in ADVICE), *((code, "a fault") for code in FAULTS)]
            return [] if place.arguments else [*place.root.summaries(None), *codes]
        case "URL":
            return [("memory:", ""), ("sqlite:///", "a file"), ("postgresql://", "a server")]
        case "NAME" if place.path[:1] == ["config"] and param.param_type_name == "argument":
            from perdure.config import SETTINGS

            return [(setting.name, setting.help) for setting in SETTINGS]
        case _:
            return [(word, "") for word in metavar.split("|")] if "|" in metavar else []


def _statuses(place: Place) -> list[str]:
    if place.path[:1] == ["approvals"]:
        from perdure.model.approvals import ApprovalStatus

        return [*ApprovalStatus, "all"]
    from perdure.model.retention import ENDS
    from perdure.model.states import Status

    return list(ENDS if place.path[:1] == ["db"] else Status)


def _from_database(place: Place, param: Any, metavar: str) -> list[Found]:
    readers: dict[str, Callable[[Client], Any]] = {
        "KIND": _kinds,
        "QUEUE": _queues,
        "A,B": _queues,
    }
    if metavar in ("ID", "ID_A", "ID_B"):
        about = "jobs" if param.name == "job" else place.path[0]
        readers[metavar] = {"approvals": _approvals, "worker": _workers}.get(
            about, lambda client: _jobs(client, place.path[-1])
        )
    reader = readers.get(metavar)
    return [] if reader is None else _read(place, reader)


def _read(place: Place, reader: Callable[[Client], Any]) -> list[Found]:
    """Ask the database the command would use, if it is there and fits; completion changes nothing."""
    import asyncio

    from perdure.cli.app_loading import plain_app
    from perdure.config import load_settings

    given = place.given or {}
    settings = load_settings({"database_url": given.get("db"), "tenant": given.get("tenant")})
    app = plain_app(settings, migrate=False)
    url = app.settings["database_url"].strip()
    if url == "memory:" or (url.startswith("sqlite:///") and not _is_file(url.removeprefix("sqlite:///"))):
        return []

    async def ask() -> list[Found]:
        try:
            async with asyncio.timeout(BUDGET):
                found: list[Found] = await reader(app.acting(via="cli"))
                return found
        finally:
            with contextlib.suppress(Exception):
                await app.close()

    return asyncio.run(ask())


def _is_file(path: str) -> bool:
    from pathlib import Path

    file = Path(path)
    return file.is_file() and file.stat().st_size > 0  # opening an empty file would make a database of it


_OF_COMMAND = {
    "cancel": ("PENDING", "RUNNING", "RETRY", "WAITING", "PARKED", "WAITING_FOR_APPROVAL"),
    "watch": ("PENDING", "RUNNING", "RETRY", "WAITING", "PARKED", "WAITING_FOR_APPROVAL"),
    "signal": ("PENDING", "RUNNING", "RETRY", "WAITING", "PARKED", "WAITING_FOR_APPROVAL"),
    "retry-now": ("RETRY", "PENDING"),
    "rerun": ("COMPLETED", "FAILED", "CANCELLED", "DEADLETTER"),
}
"""The states of jobs that a command applies to; other commands take any job."""


async def _jobs(client: Client, command: str) -> list[Found]:
    page = await list_jobs(client, JobSelection(status=_OF_COMMAND.get(command, ())), limit=LATEST)
    return [(job.short_id, _said(f"{job.status.lower()} {job.kind} {job.goal or ''}")) for job in page.items]


async def _approvals(client: Client) -> list[Found]:
    page = await list_approvals(client, limit=LATEST)
    return [(approval.short_id, _said(approval.title)) for approval in page.items]


async def _workers(client: Client) -> list[Found]:
    return [(worker.id, _said(f"{worker.host} {worker.pid}")) for worker in await list_workers(client) if worker.alive]


async def _kinds(client: Client) -> list[Found]:
    return [(name, "") for name in sorted({job.kind for job in (await list_jobs(client, limit=200)).items})]


async def _queues(client: Client) -> list[Found]:
    named = {job.queue for job in (await list_jobs(client, limit=200)).items}
    return [(name, "") for name in sorted(named.union(*(worker.queues for worker in await list_workers(client))))]


def _said(text: str) -> str:
    from perdure.cli.format import one_line

    return one_line(text)[:60].strip()


def _split(line: str) -> list[str]:
    """The words of a line as bash has it, without the program; the last one is what is being typed."""
    for closing in ("", "'", '"'):
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        if not closing and (line[-1:].isspace() or len(words) < 2):
            words.append("")
        return words[1:]
    return [""]
