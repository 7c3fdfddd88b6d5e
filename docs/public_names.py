"""Every public name of perdure, and the page of the Python reference that it is on. Used by python_reference.py.

What is public: all that `perdure`, `perdure.sync`, `perdure.testing` and `perdure.logs` export, and the records that their
signatures name. Which page an entry is on follows from the module that defines it, so nothing here needs to change when a name
does.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_origin, get_overloads, is_typeddict

from source_text import described_values

import perdure
import perdure.logs
import perdure.sync
import perdure.testing

PAGES = {
    "app": (
        "App, client, handlers and workers",
        "What a program calls to register handlers, to enqueue and to run jobs.",
    ),
    "context": ("Inside a handler", "What a handler calls: the context, and what its calls return."),
    "records": ("Records", "What calls take and return. Times are timezone-aware, in UTC; durations are in seconds."),
    "errors": (
        "Errors",
        "Every error, by its place in the tree. Each has a page that says [what to do](../errors.md).",
    ),
    "sync": ("perdure.sync", "The client for synchronous programs: see [synchronous code](../sync.md)."),
    "testing": ("perdure.testing", "For tests of handlers: see [testing](../testing.md)."),
}
"""Each page with its title and what it holds."""

MODULES = (
    ("perdure.sync", "sync"),
    ("perdure.testing", "testing"),
    ("perdure.model.errors", "errors"),
    ("perdure.runtime.context", "context"),
    ("perdure.runtime", "app"),
    ("perdure.logs", "app"),
    ("perdure.app", "app"),
    ("perdure", "records"),
)
"""The page of what a module defines; the first that fits."""

FIRST = (
    "App",
    "Client",
    "Jobs",
    "Approvals",
    "Workers",
    "Database",
    "Handle",
    "JobContext",
    "BlockingContext",
    "Job",
    "Event",
    "Approval",
    "TestApp",
    "PerdureError",
)
"""Where they exist, these come first on their pages."""

SHOWN_DUNDERS = ("__call__", "__aenter__", "__enter__")

_WORD = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class Entry:
    """One public name."""

    name: str
    value: Any
    home: str
    """The module that a program imports it from."""
    exported: bool = True

    @property
    def module(self) -> str:
        """Where it is defined."""
        defined = str(getattr(self.value, "__module__", ""))
        return defined if defined.startswith("perdure.") else self.home

    @property
    def page(self) -> str:
        """The page it is on."""
        return next(page for prefix, page in MODULES if self.module == prefix or self.module.startswith(f"{prefix}."))


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Every public name, in the order of the pages."""
    found = {entry.name: entry for entry in _exports()}
    queue = [entry.value for entry in found.values()]
    known = {id(value) for value in queue}
    while queue:
        for name, value in _named_by(queue.pop()):
            if id(value) not in known and name not in found:
                known.add(id(value))
                found[name] = Entry(
                    name, value, value.__module__ if inspect.isclass(value) else "perdure", exported=False
                )
                queue.append(value)
    pages = list(PAGES)
    return tuple(sorted(found.values(), key=lambda e: (pages.index(e.page), *_order(e))))


def _order(entry: Entry) -> tuple[Any, ...]:
    if is_error(entry.value):
        return (0, [base.__name__ for base in reversed(entry.value.__mro__) if base.__module__ == entry.module])
    return (FIRST.index(entry.name) if entry.name in FIRST else len(FIRST), not entry.exported, entry.name.lower())


def _exports() -> Iterator[Entry]:
    for name in perdure.__all__:
        if not name.startswith("_"):
            yield Entry(name, getattr(perdure, name), "perdure")
    for name in perdure.sync.__all__:
        yield Entry(f"sync.{name}", getattr(perdure.sync, name), "perdure.sync")
    for name in perdure.testing.__all__:
        yield Entry(name, getattr(perdure.testing, name), "perdure.testing")
    for name in perdure.logs.__all__:
        yield Entry(name, getattr(perdure.logs, name), "perdure.logs")


def _named_by(value: Any) -> Iterator[tuple[str, Any]]:
    """The records, clients and aliases of perdure that the public signatures and fields of a value name."""
    if not inspect.isclass(value) and not callable(value):
        return
    for text, names in _annotations(value):
        for word in _WORD.findall(text):
            named = names.get(word)
            if inspect.isclass(named):
                if named.__module__.startswith("perdure.") and _is_public_type(named):
                    yield named.__name__, named
            elif get_origin(named) is not None and word in described_values():
                yield word, named


def _is_public_type(value: type) -> bool:
    if value.__name__.startswith("_") or value.__module__.startswith("perdure.observe"):
        return False
    record = dataclasses.is_dataclass(value) or issubclass(value, enum.Enum) or hasattr(value, "_fields")
    return record or is_typeddict(value) or value.__module__.startswith(("perdure.runtime.client", "perdure.config"))


def _annotations(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if inspect.isclass(value):
        for base in own_and_inherited(value):
            names = vars(inspect.getmodule(base))
            for name, annotation in vars(base).get("__annotations__", {}).items():
                if not name.startswith("_"):
                    yield str(annotation), names
        for _, member in members(value):
            yield from _annotations(member.fget if isinstance(member, property) else member)
    elif callable(value):
        function = inspect.unwrap(value)
        names = getattr(function, "__globals__", {})
        for one in [function, *get_overloads(function)] if inspect.isfunction(function) else []:
            for annotation in getattr(one, "__annotations__", {}).values():
                yield str(annotation), names


def own_and_inherited(value: type) -> list[type]:
    return [base for base in value.__mro__ if base.__module__.startswith("perdure")]


def is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def members(value: type) -> list[tuple[str, Any]]:
    """The public methods and properties of a class, in the order of their definitions; not those of a base that has an entry."""
    found: dict[str, Any] = {}
    for base in bases_without_entry(value):
        for name, member in vars(base).items():
            public = not name.startswith("_") or (name in SHOWN_DUNDERS and bool(getattr(member, "__doc__", None)))
            if public and (inspect.isroutine(member) or isinstance(member, property | functools.cached_property)):
                found.setdefault(name, member)
    return list(found.items())


def bases_without_entry(value: type) -> list[type]:
    exported = [export.value for export in _exports() if inspect.isclass(export.value) and export.value is not value]
    above = {base for known in exported if issubclass(value, known) for base in known.__mro__}
    return [base for base in own_and_inherited(value) if base not in above]
