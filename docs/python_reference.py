"""The Python reference: docs/reference/*.md, made of the signatures and docstrings of every public name. Used by generate.py."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import re
from collections.abc import Iterator
from typing import Any, is_typeddict

from docstring_text import (
    DESCRIBED,
    anchor_of,
    as_markdown,
    code_block,
    doc_cell,
    escaped_text,
    link_to,
    paragraphs,
    type_cell,
)
from public_names import PAGES, Entry, bases_without_entry, entries, members, own_and_inherited
from signatures import plain_annotation, signatures_of
from source_text import alias_definitions, attributes_of, described_values

import perdure
from perdure.model.errors import PerdureError

_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z`])")

_SEE = re.compile(r"See `(?:\w+\.)*(\w+)\.(\w+)`\.\s*")


def pages() -> Iterator[tuple[str, str]]:
    """Every page of the reference, by its file's name."""
    yield "index.md", "\n".join(_index()) + "\n"
    for page, (title, says) in PAGES.items():
        lines = [f"# {title}", "", says, "", "[All names](index.md)", ""]
        for entry in entries():
            if entry.page == page:
                lines += _entry(entry)
        yield f"{page}.md", "\n".join(lines).rstrip("\n") + "\n"


def undocumented() -> list[str]:
    """Public names without a docstring."""
    missing = []
    for entry in entries():
        if inspect.isclass(entry.value):
            if not _own_doc(entry.value):
                missing.append(entry.name)
            missing += [f"{entry.name}.{name}" for name, member in members(entry.value) if not inspect.getdoc(member)]
        elif not _doc_of_value(entry):
            missing.append(entry.name)
    return missing


def _own_doc(value: type) -> str:
    """The docstring of a class; a dataclass without one has its signature there, which says nothing new."""
    doc = inspect.cleandoc(vars(value).get("__doc__") or "")
    return "" if doc.startswith(f"{value.__name__}(") else doc


def _index() -> Iterator[str]:
    yield from ("# Python reference", "", "Every public name, from its signature and docstring in the code.", "")
    yield from (as_markdown(perdure.__doc__ or ""), "")
    for page, (title, _) in PAGES.items():
        yield from (f"## {title}", "", "| Name | What it is |", "|---|---|")
        for entry in entries():
            if entry.page == page:
                doc = _own_doc(entry.value) if inspect.isclass(entry.value) else _doc_of_value(entry)
                first = _SENTENCE.split(" ".join(doc.split("\n\n", 1)[0].split()), maxsplit=1)[0]
                yield f"| [`{entry.name}`]({page}.md#{anchor_of(entry.name)}) | {escaped_text(first)} |"
        yield ""


def _entry(entry: Entry) -> Iterator[str]:
    yield from (f"## {entry.name}", "")
    if not inspect.isclass(entry.value):
        if entry.exported:
            yield from (f"`from {entry.home} import {entry.name}`", "")
        if inspect.isroutine(entry.value):
            yield from code_block(signatures_of(entry.name, entry.value))
        elif not entry.exported:
            yield from code_block([f"{entry.name} = {plain_annotation(alias_definitions()[entry.name])}"])
        yield from (as_markdown(_doc_of_value(entry)), "")
        return
    yield from _class_head(entry)
    doc, described = _without_fields(entry.value)
    yield from (as_markdown(doc, _parameters(entry.value)), "")
    yield from _fields(entry.value, described)
    for name, member in members(entry.value):
        if not isinstance(member, property | functools.cached_property):
            yield from _member(entry, name, member)


def _class_head(entry: Entry) -> Iterator[str]:
    value = entry.value
    facts = [f"`from {entry.home} import {value.__name__}`"]
    if issubclass(value, PerdureError) and "code" in vars(value):
        facts.append(f"code [{value.code}](../errors/{value.code}.md)")
    named = [base for base in value.__bases__ if base.__module__ in ("builtins", "enum") and base is not object]
    named += [base for base in value.__mro__[1:] if _has_entry(base)][:1]
    if bases := [base.__name__ for base in named]:
        facts.append("a kind of " + ", ".join(link_to(base) for base in bases))
    yield from ("; ".join(facts), "")
    made_by_programs = any("__init__" in vars(base) for base in bases_without_entry(value))
    if made_by_programs and not dataclasses.is_dataclass(value) and not _takes_internals(value):
        yield from code_block(signatures_of(value.__name__, value))


def _has_entry(value: type) -> bool:
    return any(entry.value is value for entry in entries())


def _takes_internals(value: type) -> bool:
    """Whether the constructor takes what no program has: then the runtime makes it."""
    return not {"Run", "Store", "Registry"}.isdisjoint(re.findall(r"\w+", str(inspect.signature(value))))


def _member(entry: Entry, name: str, member: Any) -> Iterator[str]:
    title = f"{entry.name}.{name}"
    yield from (f"### {title}", "")
    yield from code_block(signatures_of(name, inspect.unwrap(member)))
    doc = inspect.getdoc(member) or ""
    target = _referred(doc)
    if target is not None:
        yield from (as_markdown(inspect.getdoc(target) or "", _parameters(target)), "")
        doc = _SEE.sub("", doc, count=1)
    if doc:
        yield from (as_markdown(doc, _parameters(member)), "")


def _referred(doc: str) -> Any:
    """The method that a docstring refers to, as in "See `JobContext.step`."; None if it does not."""
    found = _SEE.match(doc)
    if found is None:
        return None
    owners = [
        e.value for e in entries() if inspect.isclass(e.value) and e.value.__name__ == found[1] and e.page != "sync"
    ]
    owners += [perdure.App]
    return next((m for owner in owners if (m := getattr(owner, found[2], None)) is not None), None)


def _type_elsewhere(name: str) -> str:
    """The type of a property of the blocking context, which has it from the async one."""
    twin = getattr(perdure.JobContext, name, None)
    return str(getattr(getattr(twin, "fget", None), "__annotations__", {}).get("return", ""))


def _without_fields(value: type) -> tuple[str, dict[str, str]]:
    """The docstring of a record without its descriptions of fields, and these."""
    names = {name for base in bases_without_entry(value) for name, _, _ in attributes_of(base)}
    kept, described = [], {}
    for part in paragraphs(_own_doc(value)):
        text = " ".join(part.split())
        places = [m for m in DESCRIBED.finditer(text) if set(m[1].split(", ")) <= names]
        kept.append(text[: places[0].start()].strip() if places else part)
        for place, following in zip(places, [*places[1:], None], strict=bool(places)):
            says = text[place.end() : following.start() if following else len(text)].strip()
            raised = re.search(r"(?:^|(?<=\. ))Raises ", says)
            kept.append(says[raised.start() :] if raised else "")
            described |= dict.fromkeys(place[1].split(", "), says[: raised.start()].strip() if raised else says)
    return "\n\n".join(part for part in kept if part), described


def _fields(value: type, described: dict[str, str]) -> Iterator[str]:
    rows = list(_field_rows(value, described))
    if rows:
        head = "Key" if is_typeddict(value) else "Value" if issubclass(value, enum.Enum) else "Attribute"
        yield from (f"| {head} | Type | What it is |", "|---|---|---|")
        yield from rows
        yield ""


def _field_rows(value: type, described: dict[str, str]) -> Iterator[str]:
    if issubclass(value, enum.Enum):
        for one in value:
            yield f"| `{one.name}` | `{one.value!r}` | |"
        return
    seen = set()
    for base in bases_without_entry(value):
        for name, annotation, says in attributes_of(base):
            if name not in seen and not isinstance(vars(value).get(name), property) and (annotation or says):
                seen.add(name)
                yield f"| `{name}` | {type_cell(annotation)} | {doc_cell(says or described.get(name, ''))} |"
    for name, member in members(value):
        if isinstance(member, property | functools.cached_property):
            getter = member.fget if isinstance(member, property) else member.func
            annotation = getattr(getter, "__annotations__", {}).get("return") or _type_elsewhere(name)
            yield f"| `{name}` | {type_cell(annotation)} | {doc_cell(inspect.getdoc(member) or '')} |"


def _doc_of_value(entry: Entry) -> str:
    if inspect.isroutine(entry.value):
        return inspect.getdoc(entry.value) or ""
    return described_values().get(entry.name, "")


def _parameters(value: Any) -> tuple[str, ...]:
    try:
        names = tuple(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        names = ()
    if inspect.isclass(value):
        names += tuple(name for base in own_and_inherited(value) for name, _, _ in attributes_of(base))
    return names
